// Package request holds what the stages of the API server know about a request: who asks (User), for what (Info), and
// where its warnings go.
package request

import (
	"context"
	"slices"
)

// User is an authenticated identity. It is immutable.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Well-known names and groups.
const (
	Anonymous           = "system:anonymous"
	AllAuthenticated    = "system:authenticated"
	AllUnauthenticated  = "system:unauthenticated"
	Masters             = "system:masters"
	Nodes               = "system:nodes"
	NodeUserPrefix      = "system:node:"
	ServiceAccounts     = "system:serviceaccounts"
	ServiceAccountUsers = "system:serviceaccount:" // followed by namespace:name
)

// In reports whether the user belongs to group.
func (u *User) In(group string) bool { return u != nil && slices.Contains(u.Groups, group) }

// Info is what the URL and the method say.
type Info struct {
	// Verb is the API verb (get, list, watch, create, update, patch, delete, deletecollection, or for URLs that are no
	// resources the lower case HTTP method).
	Verb string
	// IsResource is false for URLs outside /api and /apis, which only have a Path.
	IsResource            bool
	Path                  string
	Group, Version        string
	Resource, Subresource string
	Namespace, Name       string
	// Rest is the path below a subresource, with its slash: empty, or /path.
	Rest string
	// FieldSelector and LabelSelector as given, for authorizers that look at them.
	FieldSelector, LabelSelector string
}

// warnKey is where a context keeps what takes warnings.
type warnKey struct{}

// WithWarnings returns a context whose warnings go to warn.
func WithWarnings(ctx context.Context, warn func(text string)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// Warn shows text to the client as a Warning header, if the request can carry one.
func Warn(ctx context.Context, text string) {
	if warn, ok := ctx.Value(warnKey{}).(func(string)); ok {
		warn(text)
	}
}
