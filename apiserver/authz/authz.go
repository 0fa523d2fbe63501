// Package authz decides who may do what: RBAC with the default roles and bindings, and the Node authorizer.
package authz

import (
	"context"

	"proa/apiserver/request"
)

// Decision of an authorizer.
type Decision int

// NoOpinion lets the next authorizer decide; a request that nobody allows is forbidden.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

// Authorizer decides about one request. The reason is shown to the user of a forbidden request.
type Authorizer interface {
	Authorize(ctx context.Context, user *request.User, info *request.Info) (d Decision, reason string, err error)
}
