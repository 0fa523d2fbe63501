// Package api is the API as data. A Resource value describes one kind completely: names, served versions, defaulting,
// validation, update rules, table columns, selectable fields and subresources. The server's routing, discovery, OpenAPI,
// printing, field selectors and the typed client are all derived from it. The package holds no behaviour that needs a
// store, a clock of its own or a network; the kinds themselves live in one folder per API group, one file per kind, and
// package builtin lists them.
package api

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is an API object as the server stores it and hands it to every component. An Object that came out of a client
// is shared and immutable: whoever wants to change one makes a DeepCopyObject first.
type Object interface {
	metav1.Object
	runtime.Object
}

// Resource describes one kind. Its functions are pure: they change nothing but the object they are given to change
// (always a private copy), and may be called concurrently. Nil functions mean the generic behaviour.
type Resource struct {
	// GroupVersionKind is the version that is decoded, defaulted, validated, stored and handed around.
	schema.GroupVersionKind
	// Plural is the name in URLs ("pods"), Singular the name users may type ("pod").
	Plural, Singular string
	ShortNames       []string
	Categories       []string
	Namespaced       bool
	// Verbs the resource serves. Nil means all of create, delete, deletecollection, get, list, patch, update, watch.
	Verbs []string

	// New returns an empty object, NewList an empty list of them.
	New     func() Object
	NewList func() runtime.Object

	// Versions are the other served versions, best first, also those in another group (Events of events.k8s.io).
	Versions []Version

	// Subresources by name: "status", "scale", "log", ...
	Subresources []Subresource

	// HasGeneration says that metadata.generation starts at 1 and grows when anything outside metadata and status
	// changes.
	HasGeneration bool
	// DisallowUnconditionalUpdate rejects updates without a resourceVersion; CreateOnUpdate lets PUT make a new object.
	DisallowUnconditionalUpdate bool
	CreateOnUpdate              bool
	// KeepsStatusOnCreate lets clients create objects together with their status, as nodes register themselves.
	KeepsStatusOnCreate bool

	// Default fills in absent fields, as the API documentation says. It is applied after every decode.
	Default func(obj Object)
	// PrepareCreate clears or sets what clients may not choose on create, after mutating admission. The generic part (empty status when the
	// resource has a status subresource, generation 1) has been done before.
	PrepareCreate func(obj Object)
	// PrepareUpdate does the same for an update. The generic part (status kept from old, generation) has been done
	// before. It is called for the main resource only.
	PrepareUpdate func(obj, old Object)
	// PrepareStatusUpdate adjusts an update through the status subresource, after everything but status (and managed
	// fields) has been taken from old.
	PrepareStatusUpdate func(obj, old Object)
	// Validate returns what is wrong with a new object. Object metadata is validated by the server, except for the
	// name, which ValidateName covers.
	Validate func(obj Object) field.ErrorList
	// ValidateUpdate returns what is wrong with an update: the new object's own errors and forbidden changes.
	// Nil means Validate(obj).
	ValidateUpdate func(obj, old Object) field.ErrorList
	// ValidateStatusUpdate validates an update through the status subresource.
	ValidateStatusUpdate func(obj, old Object) field.ErrorList
	// ValidateName returns the problems of a name, or of a generateName prefix. Nil means a DNS-1123 subdomain.
	ValidateName func(name string, prefix bool) []string
	// Warnings are shown to the client (Warning header) after a create (old is nil) or an update.
	Warnings func(obj, old Object) []string

	// FieldNames are the field selectors besides metadata.name and metadata.namespace; FieldValue reads one of them.
	FieldNames []string
	FieldValue func(obj Object, name string) string

	// Columns of a Table; Cells returns one value per column. Nil Columns mean Name and Created At.
	Columns []Column
	Cells   func(obj Object, now time.Time) []any

	// GracePeriod returns how many seconds a delete leaves the object in place (0: remove at once), for kinds deleted
	// gracefully. opts may hold the client's wish. Nil means no graceful deletion.
	GracePeriod func(obj Object, opts *metav1.DeleteOptions) int64

	// DefaultOrphan makes deletes without a propagation policy orphan the dependents.
	DefaultOrphan bool

	// Virtual resources are computed by the server (reviews, component status); nothing is stored.
	Virtual bool
}

// Version is another served version of a kind. Convert functions take and return private copies.
type Version struct {
	// Group is empty for the resource's own.
	Group   string
	Name    string
	New     func() Object
	NewList func() runtime.Object
	// ToStorage turns an object of this version into the storage version; FromStorage does the reverse. They never
	// lose what the other version can express.
	ToStorage   func(obj Object) (Object, error)
	FromStorage func(obj Object) (Object, error)
	Default     func(obj Object)
}

// Subresource of a kind.
type Subresource struct {
	Name string
	// Kind served, when it is not the parent's ("Scale" of autoscaling/v1, "Eviction" of policy/v1, ...).
	Kind schema.GroupVersionKind
	// Verbs in discovery, for example get, patch, update.
	Verbs []string
	// Scale is set on the scale subresource.
	Scale *Scale
}

// Scale says how a kind's replicas are read and written.
type Scale struct {
	Get func(obj Object) (spec, status int32, selector string)
	Set func(obj Object, replicas int32)
}

// Column of a Table, as metav1.TableColumnDefinition.
type Column struct {
	Name, Type, Format, Description string
	// Priority 0 is always shown, 1 only with -o wide.
	Priority int32
}

// AllVerbs in discovery's order.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Key is how the resource is named in tables, RBAC and messages: "pods", "deployments.apps".
func (r *Resource) Key() string {
	return r.GroupResource().String()
}

// GroupResource of r.
func (r *Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// GroupVersionResource of r in its storage version.
func (r *Resource) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.GroupVersionKind.Version, Resource: r.Plural}
}

// Serves reports whether the resource offers verb.
func (r *Resource) Serves(verb string) bool {
	verbs := r.Verbs
	if verbs == nil {
		verbs = AllVerbs
	}
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// Subresource returns the subresource called name.
func (r *Resource) Subresource(name string) (Subresource, bool) {
	for _, s := range r.Subresources {
		if s.Name == name {
			return s, true
		}
	}
	return Subresource{}, false
}

// HasStatus reports whether the resource has a status subresource.
func (r *Resource) HasStatus() bool {
	_, ok := r.Subresource("status")
	return ok
}

// Status is the usual status subresource.
func Status() Subresource {
	return Subresource{Name: "status", Verbs: []string{"get", "patch", "update"}}
}

// ScaleOf is the usual scale subresource.
func ScaleOf(get func(obj Object) (spec, status int32, selector string), set func(obj Object, replicas int32)) Subresource {
	return Subresource{
		Name:  "scale",
		Kind:  schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		Verbs: []string{"get", "patch", "update"},
		Scale: &Scale{Get: get, Set: set},
	}
}
