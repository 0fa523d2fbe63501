package proxy

import (
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What balancers hear while the proxy starts, works, fails, works again and its node goes.
func TestStatus(t *testing.T) {
	var s status
	server := &healthServer{}
	server.local.Store(2)
	service := server.handler(types.NamespacedName{Namespace: "ns", Name: "web"}, &s)
	check := func(when string, live, healthy, endpoints int) {
		t.Helper()
		for _, q := range []struct {
			path string
			want int
		}{{"/livez", live}, {"/healthz", healthy}, {"/", endpoints}} {
			w := httptest.NewRecorder()
			handler := s.handler()
			if q.path == "/" {
				handler = service
			}
			handler.ServeHTTP(w, httptest.NewRequest("GET", q.path, nil))
			if w.Code != q.want {
				t.Errorf("%s %s answers %d, want %d: %s", when, q.path, w.Code, q.want, w.Body)
			}
			if q.path == "/healthz" && strings.Contains(w.Body.String(), `"nodeEligible":true`) != (when != "the node goes") {
				t.Errorf("%s: %s", when, w.Body)
			}
		}
	}
	check("starting", 503, 503, 503)
	s.ok()
	check("working", 200, 200, 200)
	s.fail()
	check("failing", 503, 503, 503)
	s.ok()
	s.see(&corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}}})
	check("the node goes", 200, 503, 200)
	s.see(&corev1.Node{})
	server.local.Store(0)
	check("without endpoints", 200, 200, 503)
}
