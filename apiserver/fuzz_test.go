package apiserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusedWell fails unless a request was answered, or refused as the client's fault, and left nothing behind.
func refusedWell(t *testing.T, s *Server, revision int64, method, path, contentType, body string) {
	t.Helper()
	code, answer := call(s, method, path, contentType, body)
	if code >= http.StatusInternalServerError {
		t.Errorf("%s %s: %d %.1000s", method, path, code, answer)
	}
	if now := s.store.Revision(); now != revision {
		t.Errorf("%s %s: %d, and something was written", method, path, code)
	}
}

// FuzzDecode creates objects of every kind from any body, as a dry run: what can be decoded goes the whole way through
// defaulting, admission and validation.
func FuzzDecode(f *testing.F) {
	s, _ := newFullServer(f)
	var paths []string
	for r := range s.table.All() {
		if r.Virtual || !r.Serves("create") {
			continue
		}
		prefix := "/apis/" + r.GroupVersion().String()
		if r.Group == "" {
			prefix = "/api/v1"
		}
		if r.Namespaced {
			prefix += "/namespaces/default"
		}
		paths = append(paths, prefix+"/"+r.Plural)
	}
	slices.Sort(paths)
	types := []string{typeJSON, typeYAML, typeProtobuf}
	validations := []string{"Strict", "Warn", "Ignore"}
	seed := func(path string, encoding int, body string) {
		f.Add(uint8(slices.Index(paths, path)), uint8(encoding), uint8(0), []byte(body))
	}
	seed(configMaps, 0, `{"metadata":{"name":"new","labels":{"a":"b"}},"data":{"k":"v"},"binaryData":{"b":"eA=="}}`)
	seed(configMaps, 1, "metadata: &m {name: new, generateName: x}\ndata: {k: |\n  v\n}\n")
	seed(pods, 0, newerPod)
	seed(pods, 0, pod(`"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}]`, `"resources":{"limits":{"cpu":"1500m"}},"livenessProbe":{"httpGet":{"port":"web"}}`))
	seed(deployments, 0, deployment("new", "a", "a"))
	seed(services, 0, `{"metadata":{"name":"new"},"spec":{"type":"NodePort","ipFamilyPolicy":"PreferDualStack","ports":[{"port":80,"targetPort":"x"}]}}`)
	for i := range paths {
		f.Add(uint8(i), uint8(0), uint8(1), []byte(`{"metadata":{"name":"new"},"spec":{},"rules":[{}],"subjects":[{}],"webhooks":[{}],"endpoints":[{}],"subsets":[{}]}`))
	}
	for _, obj := range []struct {
		path string
		gvk  schema.GroupVersionKind
		obj  runtime.Object
	}{
		{configMaps, corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Data: map[string]string{"k": "v"}}},
		{deployments, appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}},
	} {
		data, err := encodeWire(obj.gvk, obj.obj)
		if err != nil {
			f.Fatal(err)
		}
		seed(obj.path, 2, string(data))
	}
	revision := s.store.Revision()
	f.Fuzz(func(t *testing.T, kind, encoding, validation uint8, body []byte) {
		path := paths[int(kind)%len(paths)] + "?dryRun=All&fieldValidation=" + validations[int(validation)%len(validations)]
		refusedWell(t, s, revision, "POST", path, types[int(encoding)%len(types)], string(body))
	})
}

// FuzzPatch applies patches of all types to objects of some kinds and to their subresources, as a dry run.
func FuzzPatch(f *testing.F) {
	s, _ := newFullServer(f)
	types := []string{jsonPatch, mergePatch, strategicPatch, applyPatch}
	paths := []string{configMaps + "/cm", pods + "/p", pods + "/p/status", pods + "/bound/ephemeralcontainers", services + "/s", deployments + "/d", deployments + "/d/scale",
		namespaced + "/secrets/fixed", "/api/v1/namespaces/ending/finalize"}
	for i, in := range badPatches() {
		if kind := slices.Index(types, in.contentType); kind >= 0 && len(in.body) < 2000 {
			f.Add(uint8(i), uint8(kind), []byte(in.body))
		}
	}
	for i := range paths {
		f.Add(uint8(i), uint8(0), []byte(`[{"op":"move","from":"/metadata/name","path":"/spec/x"},{"op":"add","path":"/metadata/finalizers/-","value":"a/b"}]`))
		f.Add(uint8(i), uint8(1), []byte(`{"metadata":{"annotations":{"a":"b"},"finalizers":null},"spec":{"replicas":2}}`))
		f.Add(uint8(i), uint8(2), []byte(`{"spec":{"containers":[{"name":"c","$patch":"delete"}],"$setElementOrder/ports":[{"port":80}],"ports":[{"port":80,"$retainKeys":["port"]}]},"$deleteFromPrimitiveList/finalizers":["a"]}`))
		f.Add(uint8(i), uint8(3), []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, labels: {a: b}}\nspec: {replicas: 3, template: {spec: {containers: [{name: c, image: j}]}}}\n"))
	}
	revision := s.store.Revision()
	f.Fuzz(func(t *testing.T, target, kind uint8, body []byte) {
		path, media := paths[int(target)%len(paths)]+"?dryRun=All", types[int(kind)%len(types)]
		if media == applyPatch {
			path += "&fieldManager=m"
		}
		refusedWell(t, s, revision, "PATCH", path, media, string(body))
	})
}

// FuzzSelectors lists with any selectors and continue tokens.
func FuzzSelectors(f *testing.F) {
	s, _ := newFullServer(f)
	for _, seed := range []struct{ labels, fields, token string }{
		{"a=b,c!=d,e in (f,g),!h", "metadata.name=p,status.phase!=Failed", ""},
		{"a notin (b),c==d,e>1,g<3", "spec.nodeName==n1", continuation{Revision: 3, Start: "p\x00"}.encode()},
		{"x.io/y,,", `metadata.name=a\,b`, continuation{Revision: -1, Start: "a"}.encode()},
		{"a in (", "=", "e30"},
	} {
		f.Add(seed.labels, seed.fields, seed.token)
	}
	revision := s.store.Revision()
	f.Fuzz(func(t *testing.T, labels, fields, token string) {
		q := url.Values{"labelSelector": {labels}, "fieldSelector": {fields}, "continue": {token}, "limit": {"1"}}
		for _, path := range []string{pods, "/api/v1/nodes"} {
			refusedWell(t, s, revision, "GET", path+"?"+q.Encode(), "", "")
		}
		// What a selector says of itself selects the same.
		sel, err := parseSelector(s.lookup("", "v1", "pods"), labels, fields)
		if err != nil || sel.labels == nil {
			return
		}
		again, err := parseSelector(s.lookup("", "v1", "pods"), sel.labels.String(), "")
		if err != nil || again.labels != nil && again.labels.String() != sel.labels.String() || again.labels == nil && !sel.labels.Empty() {
			t.Errorf("selector %q reads as %q: %v", labels, strings.TrimSpace(sel.labels.String()), err)
		}
	})
}
