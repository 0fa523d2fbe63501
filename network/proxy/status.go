package proxy

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// status is what the proxy says of itself to balancers and others who ask.
type status struct {
	mu      sync.Mutex
	applied time.Time // when the rules were last as they should be
	failed  bool      // they are not since
	leaving bool      // the node takes no new traffic
}

func (s *status) ok() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied, s.failed = time.Now(), false
}

func (s *status) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
}

// see notes whether the node is about to go. The autoscaler says so with a taint.
func (s *status) see(node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == "ToBeDeletedByClusterAutoscaler"
	})
}

func (s *status) get() (applied time.Time, healthy, eligible bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied, !s.failed && !s.applied.IsZero(), !s.leaving
}

// handler answers /livez with whether the proxy works, and /healthz also with whether the node takes new traffic
// (KEP-3836).
func (s *status) handler() http.Handler {
	type answer struct {
		LastUpdated  time.Time `json:"lastUpdated"`
		CurrentTime  time.Time `json:"currentTime"`
		NodeEligible *bool     `json:"nodeEligible,omitempty"`
	}
	write := func(w http.ResponseWriter, good bool, a answer) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !good {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(a)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, r *http.Request) {
		applied, healthy, _ := s.get()
		write(w, healthy, answer{LastUpdated: applied, CurrentTime: time.Now()})
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		applied, healthy, eligible := s.get()
		write(w, healthy && eligible, answer{applied, time.Now(), &eligible})
	})
	return mux
}
