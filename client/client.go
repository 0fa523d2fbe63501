// Package client declares how every component reaches the API. It has two implementations that a component cannot tell
// apart: the API server's local one (same process, zero-copy reads from the shared objects, writes through the same
// admission and validation as HTTP) and client/remote (HTTP, for agents on another machine). A contract suite in
// client/clienttest holds both to the same behaviour.
//
// Objects that come out of a client are shared and immutable. Writes take private objects and return the committed one.
// Errors are *errors.StatusError of k8s.io/apimachinery/pkg/api/errors (IsNotFound, IsConflict, ...), or the context's.
package client

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
)

// Interface is untyped access to the API; For wraps it for one kind. Implementations are safe for concurrent use.
type Interface interface {
	// Table of the kinds that the client can reach.
	Table() *api.Table

	Get(ctx context.Context, r *api.Resource, namespace, name string) (api.Object, error)
	// List returns the objects in a namespace ("" for all), as fresh as the moment of the call.
	List(ctx context.Context, r *api.Resource, namespace string, opts metav1.ListOptions) ([]api.Object, error)
	Create(ctx context.Context, r *api.Resource, obj api.Object, opts metav1.CreateOptions) (api.Object, error)
	// Update replaces an object, or with subresource ("status") the part of it that this names.
	Update(ctx context.Context, r *api.Resource, subresource string, obj api.Object, opts metav1.UpdateOptions) (api.Object, error)
	Patch(ctx context.Context, r *api.Resource, namespace, name, subresource string, kind types.PatchType, data []byte, opts metav1.PatchOptions) (api.Object, error)
	Delete(ctx context.Context, r *api.Resource, namespace, name string, opts metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, r *api.Resource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error
	// Post creates through a subresource ("binding", "eviction", "token") and returns the answer.
	Post(ctx context.Context, r *api.Resource, namespace, name, subresource string, body runtime.Object) (runtime.Object, error)

	// Lister reads what has been seen of a scope: locally the newest committed state, remotely a cache fed by a watch
	// that lives until ctx ends. The first read of a remote lister waits for its first list.
	Lister(ctx context.Context, scope Scope) Lister
	// Subscribe tells handle of every object in the scopes, first those that exist (Added), then one Event without a
	// Resource (the synced mark), then every change. Calls are sequential; changes of one scope come in commit order. Changes may
	// be merged while the handler is slow, but the last state always arrives. It returns when ctx ends.
	Subscribe(ctx context.Context, handle func(Event), scopes ...Scope) error
}

// Scope selects objects of one kind. Nil selectors select everything.
type Scope struct {
	Resource  *api.Resource
	Namespace string
	Labels    labels.Selector
	Fields    fields.Selector
}

// Event is a change of one object. Old is nil when the object was added (or came into the scope), New when it was deleted (or
// left the scope). The zero Event is the synced mark.
type Event struct {
	Resource *api.Resource
	Old, New api.Object
}

// Object is the newest known state: New, or Old for a deletion.
func (e Event) Object() api.Object {
	if e.New != nil {
		return e.New
	}
	return e.Old
}

// Synced reports whether e is the mark after the initial objects.
func (e Event) Synced() bool { return e.Resource == nil }

// Lister reads a scope without a round trip. Its results are shared objects.
type Lister interface {
	Get(namespace, name string) (api.Object, bool)
	// All yields the objects of a namespace ("" for all) in name order.
	All(namespace string) iter.Seq[api.Object]
}
