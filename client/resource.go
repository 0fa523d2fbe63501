package client

import (
	"context"
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
)

// Resource is typed access to one kind. T is the pointer to the storage type: For[*corev1.Pod](c).
type Resource[T api.Object] struct {
	client   Interface
	resource *api.Resource
}

// For returns typed access to T's kind through c. It panics when the table lacks the kind.
func For[T api.Object](c Interface) Resource[T] {
	return Resource[T]{client: c, resource: api.For[T](c.Table())}
}

// Kind returns the table entry.
func (r Resource[T]) Kind() *api.Resource { return r.resource }

// Scope of all objects of the kind.
func (r Resource[T]) Scope() Scope { return Scope{Resource: r.resource} }

// Get reads one object, fresh.
func (r Resource[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return cast[T](r.client.Get(ctx, r.resource, namespace, name))
}

// List reads all objects of a namespace ("" for all), fresh.
func (r Resource[T]) List(ctx context.Context, namespace string, opts metav1.ListOptions) ([]T, error) {
	list, err := r.client.List(ctx, r.resource, namespace, opts)
	out := make([]T, 0, len(list))
	for _, obj := range list {
		out = append(out, obj.(T))
	}
	return out, err
}

// Create makes obj and returns the committed object.
func (r Resource[T]) Create(ctx context.Context, obj T) (T, error) {
	return cast[T](r.client.Create(ctx, r.resource, obj, metav1.CreateOptions{}))
}

// Update replaces an object; a conflict is reported when obj's resourceVersion is not the newest.
func (r Resource[T]) Update(ctx context.Context, obj T) (T, error) {
	return cast[T](r.client.Update(ctx, r.resource, "", obj, metav1.UpdateOptions{}))
}

// UpdateStatus replaces an object's status.
func (r Resource[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return cast[T](r.client.Update(ctx, r.resource, "status", obj, metav1.UpdateOptions{}))
}

// Patch changes an object, or its subresource when that is not empty.
func (r Resource[T]) Patch(ctx context.Context, namespace, name, subresource string, kind types.PatchType, data []byte) (T, error) {
	return cast[T](r.client.Patch(ctx, r.resource, namespace, name, subresource, kind, data, metav1.PatchOptions{}))
}

// Delete removes an object as opts say.
func (r Resource[T]) Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error {
	return r.client.Delete(ctx, r.resource, namespace, name, opts)
}

// Post creates through a subresource.
func (r Resource[T]) Post(ctx context.Context, namespace, name, subresource string, body runtime.Object) (runtime.Object, error) {
	return r.client.Post(ctx, r.resource, namespace, name, subresource, body)
}

// Lister reads all objects of the kind without a round trip.
func (r Resource[T]) Lister(ctx context.Context) TypedLister[T] {
	return TypedLister[T]{r.client.Lister(ctx, r.Scope())}
}

// TypedLister is a Lister of one kind.
type TypedLister[T api.Object] struct{ Lister }

// Get returns the object as last seen.
func (l TypedLister[T]) Get(namespace, name string) (T, bool) {
	obj, ok := l.Lister.Get(namespace, name)
	if !ok {
		var zero T
		return zero, false
	}
	return obj.(T), true
}

// All yields the objects of a namespace ("" for all).
func (l TypedLister[T]) All(namespace string) iter.Seq[T] {
	return func(yield func(T) bool) {
		for obj := range l.Lister.All(namespace) {
			if !yield(obj.(T)) {
				return
			}
		}
	}
}

// Select yields the objects of a namespace whose labels match.
func (l TypedLister[T]) Select(namespace string, selector labels.Selector) iter.Seq[T] {
	return func(yield func(T) bool) {
		for obj := range l.Lister.All(namespace) {
			if selector.Matches(labels.Set(obj.GetLabels())) && !yield(obj.(T)) {
				return
			}
		}
	}
}

func cast[T api.Object](obj api.Object, err error) (T, error) {
	if err != nil || obj == nil {
		var zero T
		return zero, err
	}
	return obj.(T), nil
}
