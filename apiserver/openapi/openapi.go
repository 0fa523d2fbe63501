// Package openapi describes the API in OpenAPI v3 (a document per group version) and v2 (one for all). Everything is derived by
// reflection from the table's types, their documentation and the schema that server-side apply merges by. A document is
// made when somebody first asks for it, and kept compressed: an idle server holds none.
package openapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"proa/api"
)

// OpenAPI holds the documents of a table. It is safe for concurrent use.
type OpenAPI struct {
	table *api.Table
	info  spec.Info
	order []schema.GroupVersion
	by    map[schema.GroupVersion][]served

	mu   sync.Mutex
	docs map[string]*document
}

// document is one finished document, compressed.
type document struct {
	gzip []byte
	hash string
}

// New returns the documents of t.
func New(t *api.Table, v version.Info) *OpenAPI {
	o := &OpenAPI{table: t, docs: map[string]*document{}}
	o.info = spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: v.GitVersion}}
	o.order, o.by = resourcesByVersion(t)
	return o
}

// Handlers by the path where they belong.
func (o *OpenAPI) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/openapi/v2":  http.HandlerFunc(o.serveV2),
		"/openapi/v3":  http.HandlerFunc(o.serveIndex),
		"/openapi/v3/": http.HandlerFunc(o.serveV3),
	}
}

// schemas for documents with references of the given prefix.
func (o *OpenAPI) schemas(prefix string) *schemas {
	s := &schemas{prefix: prefix, defs: map[string]*spec.Schema{}, kinds: map[reflect.Type][]schema.GroupVersionKind{}}
	scheme := api.NewScheme(o.table)
	s.lists = listTypes(scheme, &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}})
	for gvk, t := range scheme.AllKnownTypes() {
		if gvk.Version != "__internal" {
			s.kinds[t] = append(s.kinds[t], gvk)
		}
	}
	for _, list := range s.kinds {
		slices.SortFunc(list, func(a, b schema.GroupVersionKind) int {
			return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
		})
	}
	return s
}

// get returns a document, made by build when it is asked for the first time.
func (o *OpenAPI) get(name string, build func() ([]byte, error)) (*document, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.docs[name]; d != nil {
		return d, nil
	}
	data, err := build()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	d := &document{gzip: bytes.Clone(b.Bytes()), hash: strings.ToUpper(hex.EncodeToString(sum[:]))}
	o.docs[name] = d
	return d, nil
}

func (o *OpenAPI) v3(gv schema.GroupVersion) (*document, error) {
	return o.get("v3/"+root(gv), func() ([]byte, error) {
		s := o.schemas("#/components/schemas/")
		doc := &spec3.OpenAPI{Version: "3.0.0", Info: &o.info, Paths: &spec3.Paths{Paths: map[string]*spec3.Path{}}, Components: &spec3.Components{}}
		for _, one := range o.by[gv] {
			s.ref(one.object)
			for path, ops := range operations(one) {
				doc.Paths.Paths[path] = pathItem(path, ops, s)
			}
		}
		doc.Components.Schemas = s.defs
		return json.Marshal(doc)
	})
}

// hashOf a document's sources: an index needs to be cheap, so it names documents by what they are made from.
func (o *OpenAPI) hashOf(gv schema.GroupVersion) string {
	h := sha256.New()
	fmt.Fprintln(h, o.info.Version, gv)
	for _, s := range o.by[gv] {
		fmt.Fprintln(h, s.resource.Plural, s.object)
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)))
}

func (o *OpenAPI) serveIndex(w http.ResponseWriter, _ *http.Request) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	for _, gv := range o.order {
		paths[root(gv)] = entry{"/openapi/v3/" + root(gv) + "?hash=" + o.hashOf(gv)}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(map[string]any{"paths": paths}); err != nil {
		return // the client went away
	}
}

func (o *OpenAPI) serveV3(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	i := slices.IndexFunc(o.order, func(gv schema.GroupVersion) bool { return root(gv) == name })
	if i < 0 {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	gv := o.order[i]
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != o.hashOf(gv) {
			http.Redirect(w, r, "/openapi/v3/"+name+"?hash="+o.hashOf(gv), http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
	}
	d, err := o.v3(gv)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.serve(w, r, "application/json")
}

func (o *OpenAPI) serveV2(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	if strings.Contains(accept, "com.github.proto-openapi.spec.v2") {
		d, err := o.get("v2.pb", o.protobufV2)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		d.serve(w, r, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
		return
	}
	d, err := o.get("v2", o.jsonV2)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	d.serve(w, r, "application/json")
}

func (o *OpenAPI) protobufV2() ([]byte, error) {
	data, err := o.jsonV2()
	if err != nil {
		return nil, err
	}
	doc, err := openapi_v2.ParseDocument(data)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(doc)
}

// jsonV2 puts all group versions into one document. References with a description lose the wrapper that only v3 knows.
func (o *OpenAPI) jsonV2() ([]byte, error) {
	s := o.schemas("#/definitions/")
	paths := map[string]spec.PathItem{}
	for _, gv := range o.order {
		for _, one := range o.by[gv] {
			s.ref(one.object)
			for path, ops := range operations(one) {
				paths[path] = pathItemV2(path, ops, s)
			}
		}
	}
	defs := spec.Definitions{}
	for name, def := range s.defs {
		for field, prop := range def.Properties {
			if len(prop.AllOf) == 1 {
				prop.Ref, prop.AllOf = prop.AllOf[0].Ref, nil
				def.Properties[field] = prop
			}
		}
		defs[name] = *def
	}
	return json.Marshal(spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &o.info, Paths: &spec.Paths{Paths: paths}, Definitions: defs,
	}})
}

func pathItemV2(path string, ops []operation, s *schemas) spec.PathItem {
	var p spec.PathItem
	for _, name := range []string{"name", "namespace"} {
		if strings.Contains(path, "{"+name+"}") {
			p.Parameters = append(p.Parameters, spec.Parameter{
				SimpleSchema: spec.SimpleSchema{Type: "string"},
				ParamProps:   spec.ParamProps{Name: name, In: "path", Required: true},
			})
		}
	}
	for _, op := range ops {
		o := &spec.Operation{OperationProps: spec.OperationProps{
			ID: op.id, Description: op.description, Tags: []string{tag(op.gvk.GroupVersion(), path)},
			Consumes: []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"},
			Produces: []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"},
			Schemes:  []string{"https"},
		}}
		if op.method == "patch" {
			o.Consumes = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
		}
		if op.body != nil {
			schema := s.ref(op.body)
			o.Parameters = append(o.Parameters, spec.Parameter{ParamProps: spec.ParamProps{Name: "body", In: "body", Required: true, Schema: &schema}})
		}
		for _, name := range op.params {
			o.Parameters = append(o.Parameters, spec.Parameter{
				SimpleSchema:      spec.SimpleSchema{Type: parameters[name][0]},
				CommonValidations: spec.CommonValidations{UniqueItems: true},
				ParamProps:        spec.ParamProps{Name: name, In: "query", Description: parameters[name][1]},
			})
		}
		ok := spec.Response{ResponseProps: spec.ResponseProps{Description: "OK"}}
		if op.answer != nil {
			schema := s.ref(op.answer)
			ok.Schema = &schema
		}
		o.Responses = &spec.Responses{ResponsesProps: spec.ResponsesProps{StatusCodeResponses: map[int]spec.Response{
			200: ok, 401: {ResponseProps: spec.ResponseProps{Description: "Unauthorized"}},
		}}}
		o.AddExtension("x-kubernetes-action", op.action)
		o.AddExtension("x-kubernetes-group-version-kind", map[string]any{"group": op.gvk.Group, "version": op.gvk.Version, "kind": op.gvk.Kind})
		switch op.method {
		case "get":
			p.Get = o
		case "post":
			p.Post = o
		case "put":
			p.Put = o
		case "patch":
			p.Patch = o
		case "delete":
			p.Delete = o
		}
	}
	return p
}

func (d *document) serve(w http.ResponseWriter, r *http.Request, contentType string) {
	h := w.Header()
	etag := `"` + d.hash + `"`
	h.Set("ETag", etag)
	h.Set("Vary", "Accept, Accept-Encoding")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", contentType)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		if _, err := w.Write(d.gzip); err != nil {
			return // the client went away
		}
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(d.gzip))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := io.Copy(w, plain); err != nil {
		return // the client went away
	}
}
