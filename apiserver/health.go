package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// health answers /healthz, /livez and /readyz from named checks.
type health struct {
	mu     sync.RWMutex
	checks []check
}

type check struct {
	name string
	run  func() error
}

func (h *health) add(name string, run func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, run})
}

func (h *health) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.RLock()
	checks := slices.Clone(h.checks)
	h.mu.RUnlock()
	endpoint, one, single := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if single && one != "" {
		i := slices.IndexFunc(checks, func(c check) bool { return c.name == one })
		if i < 0 {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
		if err := checks[i].run(); err != nil {
			http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
		return
	}
	excluded := r.URL.Query()["exclude"]
	var text strings.Builder
	failed := false
	for _, c := range checks {
		if slices.Contains(excluded, c.name) {
			fmt.Fprintf(&text, "[+]%s excluded: ok\n", c.name)
			continue
		}
		if err := c.run(); err != nil {
			failed = true
			fmt.Fprintf(&text, "[-]%s failed: reason withheld\n", c.name)
			continue
		}
		fmt.Fprintf(&text, "[+]%s ok\n", c.name)
	}
	if failed {
		http.Error(w, text.String()+endpoint+" check failed", http.StatusInternalServerError)
		return
	}
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		fmt.Fprintf(w, "%s%s check passed\n", text.String(), endpoint)
		return
	}
	fmt.Fprint(w, "ok")
}
