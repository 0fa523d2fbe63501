package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnswerIsTheKeptForm compares answers made on the spot with those made from forms that are kept.
func TestAnswerIsTheKeptForm(t *testing.T) {
	s := bareServer(t)
	h := s.Handler()
	ask := func(method, path, accept, body string) string {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Accept", accept)
		r.Header.Set("Content-Type", typeJSON)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	created := ask("POST", configMaps, typeJSON, `{"metadata":{"name":"c"},"data":{"a":"<b>\u2028"}}`)
	_, o, err := s.current(s.lookup("", "v1", "configmaps"), "default", "c")
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{typeJSON, typeProtobuf} {
		fresh := ask("GET", configMaps+"/c", accept, "")
		if o.json.Load() != nil || o.wire.Load() != nil {
			t.Fatal("a form was kept that nobody else wants")
		}
		if accept == typeJSON && fresh != created {
			t.Errorf("created and read differ:\n%s", cmp.Diff(created, fresh))
		}
		s.watchers.Add(1)
		first := ask("GET", configMaps+"/c", accept, "")
		s.watchers.Add(-1)
		if diff := cmp.Diff(fresh, first); diff != "" {
			t.Errorf("%s: with watchers it is another answer:\n%s", accept, diff)
		}
		if diff := cmp.Diff(fresh, ask("GET", configMaps+"/c", accept, "")); diff != "" {
			t.Errorf("%s: from the kept form it is another answer:\n%s", accept, diff)
		}
		o.json.Store(nil)
		o.wire.Store(nil)
	}
}

// BenchmarkGet reads a ConfigMap of 1 KB through the handler.
func BenchmarkGet(b *testing.B) {
	s := bareServer(b)
	h := s.Handler()
	r := httptest.NewRequest("POST", configMaps, strings.NewReader(`{"metadata":{"name":"c"},"data":{"k":"`+strings.Repeat("x", 1000)+`"}}`))
	r.Header.Set("Content-Type", typeJSON)
	h.ServeHTTP(httptest.NewRecorder(), r)
	for _, accept := range []string{typeJSON, typeProtobuf} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", configMaps+"/c", nil)
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
