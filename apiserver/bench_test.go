package apiserver

import (
	"fmt"
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

func benchServer(b *testing.B) *Server {
	b.Helper()
	table := builtin.Table()
	st, err := store.Open(b.Context(), store.Config{Decode: Decode(table)})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{Table: table, Store: st})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		s.dispatch.close()
		if err := st.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkCreate creates ConfigMaps of 1 KB through the handler.
func BenchmarkCreate(b *testing.B) {
	h := benchServer(b).Handler()
	data := strings.Repeat("x", 1000)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		body := fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"k":%q}}`, n, data)
		r := httptest.NewRequest("POST", configMaps, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Fatal(w.Body)
		}
	}
}

// BenchmarkListPods lists 10,000 pods.
func BenchmarkListPods(b *testing.B) {
	s := benchServer(b)
	pods := client.For[*corev1.Pod](s.Client(&request.User{Name: "bench"}, "bench"))
	for i := range 10000 {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		pod.Namespace, pod.Name = "default", fmt.Sprintf("p%d", i)
		if _, err := pods.Create(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
	h := s.Handler()
	for _, accept := range []string{typeJSON, typeProtobuf} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/api/v1/pods", nil)
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
