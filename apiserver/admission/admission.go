// Package admission holds the chain of steps that see every write between decoding and validation: each may change the
// object (Admit) or refuse it (Validate). One file per plugin; Chain lists them in order.
package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
	"proa/apiserver/request"
)

// Operation is what a request does, as admission webhooks name it.
type Operation string

// The operations.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes of one write. Object is private to the request and may be changed by Admit; OldObject is shared.
type Attributes struct {
	Operation   Operation
	Resource    *api.Resource
	Subresource string
	Namespace   string
	// Name may be empty on create, when it is generated later.
	Name string
	// Object is the new object (nil for deletes). For subresources with their own kind (binding, eviction, token), Body
	// holds what was sent and Object is nil.
	Object, OldObject api.Object
	Body              runtime.Object
	// Options is *metav1.CreateOptions, *UpdateOptions, *PatchOptions or *DeleteOptions.
	Options runtime.Object
	DryRun  bool
	User    *request.User
}

// Plugin is one admission step. It returns an API status error to refuse the write. Implementations embed Pass for the
// half they lack.
type Plugin interface {
	Name() string
	// Admit may change a.Object.
	Admit(ctx context.Context, a *Attributes) error
	// Validate sees the final object and changes nothing.
	Validate(ctx context.Context, a *Attributes) error
}

// Pass admits and validates everything.
type Pass struct{}

// Admit does nothing.
func (Pass) Admit(context.Context, *Attributes) error { return nil }

// Validate does nothing.
func (Pass) Validate(context.Context, *Attributes) error { return nil }

// Chain runs plugins in order, first all Admit, then all Validate.
type Chain []Plugin

// Admit runs the mutating half.
func (c Chain) Admit(ctx context.Context, a *Attributes) error {
	for _, p := range c {
		if err := p.Admit(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Validate runs the validating half.
func (c Chain) Validate(ctx context.Context, a *Attributes) error {
	for _, p := range c {
		if err := p.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
