package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// paths are the handlers of what is no resource.
type paths struct {
	exact map[string]http.Handler
	// prefixes end in /; the longest that fits is taken.
	prefixes map[string]http.Handler
}

func (s *Server) newPaths() paths {
	p := paths{map[string]http.Handler{}, map[string]http.Handler{}}
	p.add("/version", http.HandlerFunc(s.serveVersion))
	p.exact["/version/"] = p.exact["/version"]
	for _, name := range []string{"/healthz", "/livez", "/readyz"} {
		p.exact[name] = http.HandlerFunc(s.health.serve)
		p.prefixes[name+"/"] = p.exact[name]
	}
	p.add("/metrics", http.HandlerFunc(s.metrics.serve))
	for path, h := range s.config.Handlers {
		p.add(path, h)
	}
	if p.exact["/"] == nil {
		p.exact["/"] = http.HandlerFunc(s.serveIndex)
	}
	return p
}

func (p *paths) add(path string, h http.Handler) {
	if strings.HasSuffix(path, "/") && path != "/" {
		p.prefixes[path] = h
		return
	}
	p.exact[path] = h
}

func (p *paths) find(path string) http.Handler {
	if h := p.exact[path]; h != nil {
		return h
	}
	for i := len(path); i > 0; {
		i = strings.LastIndexByte(path[:i], '/')
		if i < 0 {
			break
		}
		if h := p.prefixes[path[:i+1]]; h != nil {
			return h
		}
	}
	return p.exact[strings.TrimSuffix(path, "/")]
}

func (p *paths) has(path string) bool { return p.find(path) != nil }

func (p *paths) serve(w http.ResponseWriter, r *http.Request) error {
	h := p.find(r.URL.Path)
	if h == nil {
		return errNoPath
	}
	h.ServeHTTP(w, r)
	return nil
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	data, err := json.MarshalIndent(s.config.Version, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(data)
}

// serveIndex lists the paths that are served.
func (s *Server) serveIndex(w http.ResponseWriter, _ *http.Request) {
	root := metav1.RootPaths{}
	for path := range s.handlers.exact {
		root.Paths = append(root.Paths, path)
	}
	for gv := range s.builtin.groups {
		if gv.Group == "" {
			root.Paths = append(root.Paths, "/api/"+gv.Version)
		} else {
			root.Paths = append(root.Paths, "/apis/"+gv.Group, "/apis/"+gv.String())
		}
	}
	slices.Sort(root.Paths)
	root.Paths = slices.Compact(root.Paths)
	data, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	_, _ = w.Write(data)
}
