package discovery

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"proa/api/builtin"
)

// get asks for a path and returns the answer.
func get(t *testing.T, d *Discovery, path, accept string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for p, h := range d.Handlers() {
		mux.Handle(p, h)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestLegacy(t *testing.T) {
	d := New(builtin.Table())
	var groups metav1.APIGroupList
	if err := json.Unmarshal(get(t, d, "/apis", "application/json").Body.Bytes(), &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if g.Name == "autoscaling" && g.PreferredVersion.GroupVersion != "autoscaling/v2" {
			t.Errorf("autoscaling prefers %s, want autoscaling/v2", g.PreferredVersion.GroupVersion)
		}
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(get(t, d, "/api/v1", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	find := func(name string) metav1.APIResource {
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
		if i < 0 {
			t.Fatalf("no resource %s in /api/v1", name)
		}
		return list.APIResources[i]
	}
	if pods := find("pods"); !pods.Namespaced || !slices.Equal(pods.ShortNames, []string{"po"}) || pods.StorageVersionHash == "" {
		t.Errorf("pods: %+v", pods)
	}
	if e := find("pods/eviction"); e.Group != "policy" || e.Kind != "Eviction" {
		t.Errorf("pods/eviction: %+v", e)
	}
	for _, path := range []string{"/api/", "/apis/"} {
		if w := get(t, d, path, ""); w.Code != http.StatusOK {
			t.Errorf("%s gives %d, want what it gives without the slash", path, w.Code)
		}
	}
	if w := get(t, d, "/apis/none.example.com/v1", ""); w.Code != http.StatusNotFound {
		t.Errorf("an unknown group gives %d, want 404", w.Code)
	}
}

func TestAggregated(t *testing.T) {
	d := New(builtin.Table())
	const accept = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
	w := get(t, d, "/apis", accept+",application/json")
	if got := w.Header().Get("Content-Type"); got != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" {
		t.Errorf("content type %q", got)
	}
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < 15 || list.Items[0].Name == "" {
		t.Errorf("/apis lists %d groups, the first %q", len(list.Items), list.Items[0].Name)
	}
	if again := get(t, d, "/apis", accept, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusNotModified {
		t.Errorf("a known ETag gives %d, want 304", again.Code)
	}
	d.Set(Group("stable.example.com", map[string][]apidiscovery.APIResourceDiscovery{"v1": {{Resource: "widgets"}}}))
	if again := get(t, d, "/apis", accept, "If-None-Match", w.Header().Get("ETag")); again.Code != http.StatusOK {
		t.Errorf("after a new group the old ETag gives %d, want 200", again.Code)
	}
}

func TestProtobuf(t *testing.T) {
	d := New(builtin.Table())
	w := get(t, d, "/apis/apps/v1", protobufType)
	var list metav1.APIResourceList
	if _, _, err := serializer().Decode(w.Body.Bytes(), nil, &list); err != nil {
		t.Fatal(err)
	}
	if list.GroupVersion != "apps/v1" || len(list.APIResources) == 0 {
		t.Errorf("got %+v", list)
	}
}

func serializer() *protobuf.Serializer {
	s := runtime.NewScheme()
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.APIResourceList{})
	return protobuf.NewSerializer(s, s)
}
