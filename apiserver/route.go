package apiserver

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"proa/apiserver/request"
)

// parse says what the URL and the method ask for.
func parse(r *http.Request) *request.Info {
	info := &request.Info{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.Group, info.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return info
	}
	info.IsResource = true
	deprecatedWatch := false
	if parts[0] == "watch" && len(parts) > 1 {
		deprecatedWatch, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 2 && !(len(parts) == 3 && (parts[2] == "status" || parts[2] == "finalize")) {
		info.Namespace, parts = parts[1], parts[2:]
	}
	info.Resource = parts[0]
	if len(parts) > 1 {
		info.Name = parts[1]
	}
	if len(parts) > 2 {
		info.Subresource = parts[2]
	}
	if len(parts) > 3 {
		info.Rest = "/" + strings.Join(parts[3:], "/")
	}
	// A namespace as a resource is asked for in itself.
	if info.Resource == "namespaces" && info.Group == "" && info.Name != "" {
		info.Namespace = info.Name
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		info.Verb = "get"
		if info.Name == "" {
			info.Verb = "list"
		}
	case http.MethodPost:
		info.Verb = "create"
	case http.MethodPut:
		info.Verb = "update"
	case http.MethodPatch:
		info.Verb = "patch"
	case http.MethodDelete:
		info.Verb = "delete"
		if info.Name == "" {
			info.Verb = "deletecollection"
		}
	}
	if deprecatedWatch {
		info.Verb = "watch"
	}
	if info.Verb == "list" || info.Verb == "watch" || info.Verb == "deletecollection" {
		q := r.URL.Query()
		info.FieldSelector, info.LabelSelector = q.Get("fieldSelector"), q.Get("labelSelector")
		if w := q["watch"]; info.Verb == "list" && len(w) > 0 && w[0] != "false" && w[0] != "0" {
			info.Verb = "watch"
		}
		// A selector of one name is authorized as access to that name.
		if info.Name == "" && info.FieldSelector != "" {
			if sel, err := fields.ParseSelector(info.FieldSelector); err == nil {
				if name, ok := sel.RequiresExactMatch(metav1.ObjectNameField); ok {
					info.Name = name
				}
			}
		}
	}
	return info
}

// plainPath refuses paths that different readers could understand differently.
func plainPath(r *http.Request) bool {
	path := r.URL.Path
	if path == "" || path[0] != '/' || strings.Contains(path, "\x00") {
		return false
	}
	// What is below a proxy subresource belongs to somebody else.
	head, _, proxied := strings.Cut(path, "/proxy/")
	if proxied {
		path = head
	}
	if strings.Contains(path, "//") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." || part == "." {
			return false
		}
	}
	if raw := r.URL.RawPath; raw != "" && !proxied {
		lower := strings.ToLower(raw)
		return !strings.Contains(lower, "%2f") && !strings.Contains(lower, "%2e%2e")
	}
	return true
}
