package discovery

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// accepted is what the client asked for: protobuf or JSON, legacy or an aggregated version ("v2", "v2beta1").
type accepted struct {
	proto      bool
	aggregated string
}

func accept(r *http.Request, mayAggregate bool) accepted {
	for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		kind, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		a := accepted{proto: kind == protobufType}
		if kind != "application/json" && kind != protobufType && kind != "*/*" && kind != "application/*" {
			continue
		}
		if params["as"] != "" {
			v := params["v"]
			if !mayAggregate || params["as"] != "APIGroupDiscoveryList" || params["g"] != "apidiscovery.k8s.io" || (v != "v2" && v != "v2beta1") {
				continue
			}
			a.aggregated = v
		}
		return a
	}
	return accepted{}
}

func (d *Discovery) serveAPI(w http.ResponseWriter, r *http.Request) {
	a := accept(r, true)
	docs := d.current()
	if a.aggregated != "" {
		docs.serveAggregated(w, r, a, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name == "" })
		return
	}
	// The server's address is what the client dialled: it got here.
	write(w, r, a, &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
	})
}

func (d *Discovery) serveAPIs(w http.ResponseWriter, r *http.Request) {
	a := accept(r, true)
	docs := d.current()
	if a.aggregated != "" {
		docs.serveAggregated(w, r, a, func(g apidiscovery.APIGroupDiscovery) bool { return g.Name != "" })
		return
	}
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range docs.groups {
		if g.Name != "" {
			list.Groups = append(list.Groups, legacyGroup(g))
		}
	}
	write(w, r, a, list)
}

// serveBelow answers /api/v1, /apis/<group> and /apis/<group>/<version>.
func (d *Discovery) serveBelow(w http.ResponseWriter, r *http.Request) {
	a := accept(r, false)
	path := strings.Trim(r.URL.Path, "/")
	switch path {
	case "api":
		d.serveAPI(w, r)
		return
	case "apis":
		d.serveAPIs(w, r)
		return
	}
	group, version := "", ""
	if rest, ok := strings.CutPrefix(path, "apis/"); ok {
		group, version, _ = strings.Cut(rest, "/")
	} else {
		version = strings.TrimPrefix(path, "api/")
	}
	for _, g := range d.current().groups {
		if g.Name != group {
			continue
		}
		if version == "" {
			one := legacyGroup(g)
			one.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			write(w, r, a, &one)
			return
		}
		for _, v := range g.Versions {
			if v.Version == version {
				write(w, r, a, legacyResources(g, v))
				return
			}
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNotFound)
	w.Write([]byte("404 page not found\n"))
}

func legacyGroup(g apidiscovery.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		gv := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}.String(), Version: v.Version}
		out.Versions = append(out.Versions, gv)
	}
	if len(out.Versions) > 0 {
		out.PreferredVersion = out.Versions[0]
	}
	return out
}

func legacyResources(g apidiscovery.APIGroupDiscovery, v apidiscovery.APIVersionDiscovery) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}.String(),
		APIResources: []metav1.APIResource{},
	}
	for _, r := range v.Resources {
		namespaced := r.Scope == apidiscovery.ScopeNamespace
		one := metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: namespaced, Kind: r.ResponseKind.Kind,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		if slices.Contains(r.Verbs, "list") {
			one.StorageVersionHash = storageHash(g.Name, v.Version, r.ResponseKind.Kind)
		}
		list.APIResources = append(list.APIResources, one)
		for _, s := range r.Subresources {
			sub := metav1.APIResource{Name: r.Resource + "/" + s.Subresource, Namespaced: namespaced, Kind: s.ResponseKind.Kind, Verbs: s.Verbs}
			if s.ResponseKind.Group != g.Name || s.ResponseKind.Version != v.Version {
				sub.Group, sub.Version = s.ResponseKind.Group, s.ResponseKind.Version
			}
			list.APIResources = append(list.APIResources, sub)
		}
	}
	return list
}

// serveAggregated sends the groups that belong to /api or /apis in one document.
func (docs *documents) serveAggregated(w http.ResponseWriter, r *http.Request, a accepted, belongs func(apidiscovery.APIGroupDiscovery) bool) {
	w.Header().Set("Vary", "Accept")
	w.Header().Set("ETag", docs.etag)
	w.Header().Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == docs.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/" + a.aggregated},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}
	for _, g := range docs.groups {
		if belongs(g) {
			list.Items = append(list.Items, g)
		}
	}
	contentType := ";g=apidiscovery.k8s.io;v=" + a.aggregated + ";as=APIGroupDiscoveryList"
	if a.proto {
		writeProto(w, r, list, protobufType+contentType)
		return
	}
	writeJSON(w, r, list, "application/json"+contentType)
}

func write(w http.ResponseWriter, r *http.Request, a accepted, obj runtime.Object) {
	w.Header().Set("Vary", "Accept")
	if a.proto {
		writeProto(w, r, obj, protobufType)
		return
	}
	writeJSON(w, r, obj, "application/json")
}

func writeJSON(w http.ResponseWriter, r *http.Request, obj runtime.Object, contentType string) {
	data, err := json.Marshal(obj)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if pretty := r.URL.Query().Get("pretty"); pretty == "true" || pretty == "1" {
		var b bytes.Buffer
		if json.Indent(&b, data, "", "  ") == nil {
			data = b.Bytes()
		}
	}
	w.Header().Set("Content-Type", contentType)
	w.Write(append(data, '\n'))
}

func writeProto(w http.ResponseWriter, _ *http.Request, obj runtime.Object, contentType string) {
	var b bytes.Buffer
	if err := protobuf.NewSerializer(nil, nil).Encode(obj, &b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Write(b.Bytes())
}
