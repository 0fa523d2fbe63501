package openapi

import (
	"cmp"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa/api"
)

// served is a resource in one version.
type served struct {
	resource *api.Resource
	gv       schema.GroupVersion
	object   reflect.Type
	list     reflect.Type // nil when it cannot be listed
}

func (s served) gvk() schema.GroupVersionKind { return s.gv.WithKind(s.resource.Kind) }

// resourcesByVersion sorts a table's resources into the group versions that serve them.
func resourcesByVersion(t *api.Table) (order []schema.GroupVersion, by map[schema.GroupVersion][]served) {
	by = map[schema.GroupVersion][]served{}
	add := func(r *api.Resource, gv schema.GroupVersion, obj api.Object, list func() runtime.Object) {
		if by[gv] == nil {
			order = append(order, gv)
		}
		s := served{resource: r, gv: gv, object: reflect.TypeOf(obj).Elem()}
		if list != nil && r.Serves("list") {
			s.list = reflect.TypeOf(list()).Elem()
		}
		by[gv] = append(by[gv], s)
	}
	for r := range t.All() {
		add(r, r.GroupVersion(), r.New(), r.NewList)
		for _, v := range r.Versions {
			add(r, schema.GroupVersion{Group: cmp.Or(v.Group, r.Group), Version: v.Name}, v.New(), v.NewList)
		}
	}
	return order, by
}

// root is the URL below which a group version lies, without the first slash.
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// operation as far as generators and kubectl look at it.
type operation struct {
	method, id, action string
	gvk                schema.GroupVersionKind
	body, answer       reflect.Type
	params             []string
	description        string
}

// parameters that operations take; the type is a JSON type.
var parameters = map[string][2]string{
	"pretty":               {"string", "If 'true', then the output is pretty printed."},
	"dryRun":               {"string", "When present, indicates that modifications should not be persisted. Valid values are: All."},
	"fieldManager":         {"string", "The name of the actor that makes these changes, for tracking of managed fields."},
	"fieldValidation":      {"string", "What to do about unknown or duplicate fields: Ignore, Warn or Strict."},
	"force":                {"boolean", "Take over fields that conflict in an apply request."},
	"allowWatchBookmarks":  {"boolean", "Ask for events of type BOOKMARK."},
	"continue":             {"string", "Where to go on with a list that came in portions."},
	"fieldSelector":        {"string", "Restrict the objects by their fields."},
	"labelSelector":        {"string", "Restrict the objects by their labels."},
	"limit":                {"integer", "The most objects to return in one answer."},
	"resourceVersion":      {"string", "Constraint on the versions that may be served."},
	"resourceVersionMatch": {"string", "How resourceVersion constrains a list."},
	"sendInitialEvents":    {"boolean", "Begin a watch with the existing objects."},
	"timeoutSeconds":       {"integer", "How long the call may last."},
	"watch":                {"boolean", "Watch instead of list."},
	"gracePeriodSeconds":   {"integer", "How long the object may take to end."},
	"orphanDependents":     {"boolean", "Deprecated: use propagationPolicy."},
	"propagationPolicy":    {"string", "What becomes of dependents: Orphan, Background or Foreground."},
}

var (
	listParams   = []string{"pretty", "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch"}
	writeParams  = []string{"pretty", "dryRun", "fieldManager", "fieldValidation"}
	patchParams  = append([]string{"force"}, writeParams...)
	deleteParams = []string{"pretty", "dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"}
	statusType   = reflect.TypeFor[metav1.Status]()
	optionsType  = reflect.TypeFor[metav1.DeleteOptions]()
	patchType    = reflect.TypeFor[metav1.Patch]()
)

// operations of a resource by path.
func operations(s served) map[string][]operation {
	r, gvk := s.resource, s.gvk()
	out := map[string][]operation{}
	collection := "/" + root(s.gv) + "/" + r.Plural
	scope := ""
	if r.Namespaced {
		collection = "/" + root(s.gv) + "/namespaces/{namespace}/" + r.Plural
		scope = "Namespaced"
	}
	item := collection + "/{name}"
	id := func(verb, suffix string) string {
		group := strings.ReplaceAll(strings.TrimSuffix(s.gv.Group, ".k8s.io"), ".", "")
		return verb + upper(cmp.Or(group, "core")) + upper(s.gv.Version) + scope + r.Kind + suffix
	}
	add := func(path string, verb string, op operation) {
		if r.Serves(verb) {
			op.gvk = gvk
			out[path] = append(out[path], op)
		}
	}
	add(collection, "list", operation{method: "get", id: id("list", ""), action: "list", answer: s.list, params: listParams, description: "list or watch objects of kind " + r.Kind})
	add(collection, "create", operation{method: "post", id: id("create", ""), action: "post", body: s.object, answer: s.object, params: writeParams, description: "create a " + r.Kind})
	add(collection, "deletecollection", operation{method: "delete", id: id("deleteCollection", ""), action: "deletecollection", body: optionsType, answer: statusType, params: append(deleteParams, listParams[1:]...), description: "delete collection of " + r.Kind})
	add(item, "get", operation{method: "get", id: id("read", ""), action: "get", answer: s.object, params: []string{"pretty"}, description: "read the specified " + r.Kind})
	add(item, "update", operation{method: "put", id: id("replace", ""), action: "put", body: s.object, answer: s.object, params: writeParams, description: "replace the specified " + r.Kind})
	add(item, "patch", operation{method: "patch", id: id("patch", ""), action: "patch", body: patchType, answer: s.object, params: patchParams, description: "partially update the specified " + r.Kind})
	add(item, "delete", operation{method: "delete", id: id("delete", ""), action: "delete", body: optionsType, answer: statusType, params: deleteParams, description: "delete a " + r.Kind})
	if r.Namespaced && r.Serves("list") {
		out["/"+root(s.gv)+"/"+r.Plural] = []operation{{method: "get", id: id("list", "ForAllNamespaces"), action: "list", gvk: gvk, answer: s.list, params: listParams, description: "list or watch objects of kind " + r.Kind}}
	}
	for _, sub := range r.Subresources {
		kind := gvk
		if !sub.Kind.Empty() {
			kind = sub.Kind
		}
		path := item + "/" + sub.Name
		for _, verb := range sub.Verbs {
			method, action := verbMethod(verb)
			op := operation{method: method, id: id(idVerb(verb), upper(sub.Name)), action: action, gvk: kind, params: writeParams, description: verb + " " + sub.Name + " of the specified " + r.Kind}
			if sub.Kind.Empty() {
				op.answer = s.object
				switch verb {
				case "update", "create":
					op.body = s.object
				case "patch":
					op.body, op.params = patchType, patchParams
				}
			}
			if verb == "get" {
				op.params = []string{"pretty"}
			}
			out[path] = append(out[path], op)
		}
	}
	return out
}

func verbMethod(verb string) (method, action string) {
	switch verb {
	case "create":
		return "post", "post"
	case "update":
		return "put", "put"
	case "patch":
		return "patch", "patch"
	case "delete":
		return "delete", "delete"
	}
	return "get", "get"
}

func idVerb(verb string) string {
	switch verb {
	case "update":
		return "replace"
	case "get":
		return "read"
	}
	return verb
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// pathItem turns operations into their OpenAPI v3 form.
func pathItem(path string, ops []operation, s *schemas) *spec3.Path {
	p := &spec3.Path{}
	for _, name := range []string{"name", "namespace"} {
		if strings.Contains(path, "{"+name+"}") {
			p.Parameters = append(p.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
				Name: name, In: "path", Required: true, Schema: spec.StringProperty(),
			}})
		}
	}
	for _, op := range ops {
		o := &spec3.Operation{OperationProps: spec3.OperationProps{
			OperationId: op.id, Description: op.description, Tags: []string{tag(op.gvk.GroupVersion(), path)},
			Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
				200: response("OK", op.answer, s), 401: response("Unauthorized", nil, s),
			}}},
		}}
		for _, name := range op.params {
			o.Parameters = append(o.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
				Name: name, In: "query", Description: parameters[name][1],
				Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{parameters[name][0]}, UniqueItems: true}},
			}})
		}
		if op.body != nil {
			o.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: true, Content: bodies(op, s)}}
		}
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

func bodies(op operation, s *schemas) map[string]*spec3.MediaType {
	types := []string{"*/*"}
	if op.method == "patch" {
		types = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
	}
	out := map[string]*spec3.MediaType{}
	for _, t := range types {
		schema := s.ref(op.body)
		out[t] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: &schema}}
	}
	return out
}

func response(text string, t reflect.Type, s *schemas) *spec3.Response {
	r := &spec3.Response{ResponseProps: spec3.ResponseProps{Description: text}}
	if t != nil {
		schema := s.ref(t)
		r.Content = map[string]*spec3.MediaType{}
		for _, kind := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
			r.Content[kind] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: &schema}}
		}
	}
	return r
}

func tag(gv schema.GroupVersion, path string) string {
	if strings.HasPrefix(path, "/api/") {
		return "core_v1"
	}
	return strings.ReplaceAll(strings.TrimSuffix(gv.Group, ".k8s.io"), ".", "") + "_" + gv.Version
}
