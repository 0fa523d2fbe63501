package apiserver

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa/api/builtin"
	"proa/apiserver/request"
	"proa/client"
	"proa/store"
)

// TestChangedObject finds a component that changes what everybody shares.
func TestChangedObject(t *testing.T) {
	for _, env := range []string{"", "1"} {
		t.Setenv(checkEnv, env)
		table := builtin.Table()
		st, err := store.Open(t.Context(), store.Config{Decode: Decode(table)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Table: table, Store: st, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := call(s, "POST", configMaps, typeJSON, `{"metadata":{"name":"a"},"data":{"k":"v"}}`); code != 201 {
			t.Fatal(answer)
		}
		maps := client.For[*corev1.ConfigMap](s.Client(&request.User{Name: "test"}, "test"))
		shared, err := maps.Get(t.Context(), "default", "a")
		if err != nil {
			t.Fatal(err)
		}
		shared.Data["k"] = "changed"
		want := http.StatusOK
		if env != "" {
			want = http.StatusInternalServerError
			if err := s.encodings.seals.all(); err == nil || !strings.Contains(err.Error(), `{"k":"v"}`) {
				t.Errorf("%v, want the object as it was", err)
			}
		}
		if code, answer := call(s, "PATCH", configMaps+"/a", mergePatch, `{"data":{"x":"y"}}`); code != want {
			t.Errorf("with %s=%s: %d %s, want %d", checkEnv, env, code, answer, want)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOrphanWarning warns who deletes a Job and says nothing of its pods.
func TestOrphanWarning(t *testing.T) {
	s, _ := newFullServer(t)
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	for query, warned := range map[string]bool{"": true, "?propagationPolicy=Orphan": false, "?propagationPolicy=Background": false} {
		if code, answer := call(s, "POST", jobs, typeJSON,
			`{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`); code != 201 {
			t.Fatal(answer)
		}
		w := httptest.NewRecorder()
		s.serve(w, httptest.NewRequest("DELETE", jobs+"/j"+query, nil))
		if got := strings.Contains(w.Header().Get("Warning"), "child pods are preserved by default"); w.Code != 200 || got != warned {
			t.Errorf("delete%s: %d, warnings %q", query, w.Code, w.Header().Values("Warning"))
		}
		if !strings.Contains(query, "Background") {
			// What orphans its dependents waits for the garbage collector.
			if code, answer := call(s, "PATCH", jobs+"/j", mergePatch, `{"metadata":{"finalizers":null}}`); code != 200 {
				t.Fatal(answer)
			}
		}
	}
}
