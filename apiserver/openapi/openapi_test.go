package openapi

import (
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/version"

	"proa/api/builtin"
)

func get(t *testing.T, o *OpenAPI, url, accept string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for p, h := range o.Handlers() {
		mux.Handle(p, h)
	}
	r := httptest.NewRequest(http.MethodGet, url, nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", url, w.Code, w.Body)
	}
	return w
}

type document3 struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]struct {
			Description string
			Required    []string
			GVK         []map[string]string `json:"x-kubernetes-group-version-kind"`
			Properties  map[string]map[string]any
		}
	}
}

func TestV3(t *testing.T) {
	o := New(builtin.Table(), version.Info{GitVersion: "v1.31.0"})
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		}
	}
	if err := json.Unmarshal(get(t, o, "/openapi/v3", "").Body.Bytes(), &index); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"api/v1", "apis/apps/v1", "apis/batch/v1"} {
		w := get(t, o, index.Paths[name].URL, "")
		plain, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		var doc document3
		if err := json.NewDecoder(plain).Decode(&doc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name != "api/v1" {
			continue
		}
		pod := doc.Components.Schemas["io.k8s.api.core.v1.Pod"]
		if len(pod.GVK) != 1 || pod.GVK[0]["kind"] != "Pod" || pod.Description == "" {
			t.Errorf("Pod: kinds %v, description %q", pod.GVK, pod.Description)
		}
		spec := doc.Components.Schemas["io.k8s.api.core.v1.PodSpec"]
		containers := spec.Properties["containers"]
		if containers["x-kubernetes-list-type"] != "map" || containers["x-kubernetes-patch-merge-key"] != "name" {
			t.Errorf("containers merge as %v", containers)
		}
		if _, ok := spec.Properties["hostnameOverride"]; ok {
			t.Error("a field newer than 1.31 is described")
		}
		if len(spec.Required) != 1 || spec.Required[0] != "containers" {
			t.Errorf("PodSpec requires %v", spec.Required)
		}
		if doc.Paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"] == nil {
			t.Error("patching a pod is not described")
		}
	}
}

func TestV2Protobuf(t *testing.T) {
	o := New(builtin.Table(), version.Info{GitVersion: "v1.31.0"})
	w := get(t, o, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	plain, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 0, 1<<20)
	buf := make([]byte, 1<<16)
	for {
		n, err := plain.Read(buf)
		data = append(data, buf[:n]...)
		if err != nil {
			break
		}
	}
	var doc openapi_v2.Document
	if err := proto.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.GetDefinitions().GetAdditionalProperties()) < 300 {
		t.Errorf("%d definitions, want hundreds", len(doc.GetDefinitions().GetAdditionalProperties()))
	}
}
