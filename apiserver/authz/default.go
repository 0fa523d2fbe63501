package authz

import (
	"context"

	"proa/apiserver/request"
	"proa/client"
)

// Default returns the authorizers of a cluster in order: the all-powerful group, nodes, RBAC. Node and RBAC answer from the
// moment they are made; while their Run is running they answer from indexes instead of looking everything through.
func Default(c client.Interface) []Authorizer {
	return []Authorizer{Masters{}, NewNode(c), NewRBAC(c)}
}

// Runner is an authorizer that wants to be run beside the server.
type Runner interface {
	Run(ctx context.Context) error
}

// Masters lets the group system:masters do everything.
type Masters struct{}

// Authorize allows members of the group.
func (Masters) Authorize(_ context.Context, user *request.User, _ *request.Info) (Decision, string, error) {
	if user.In(request.Masters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// Union asks authorizers in order; the first that has an opinion decides.
type Union []Authorizer

// Authorize returns the first opinion, or the reasons of all that have none.
func (u Union) Authorize(ctx context.Context, user *request.User, info *request.Info) (Decision, string, error) {
	var reasons string
	var failure error
	for _, a := range u {
		d, reason, err := a.Authorize(ctx, user, info)
		if d != NoOpinion {
			return d, reason, err
		}
		if reason != "" {
			if reasons != "" {
				reasons += "\n"
			}
			reasons += reason
		}
		if err != nil {
			failure = err
		}
	}
	return NoOpinion, reasons, failure
}
