package api

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Table is an immutable set of resources, with the look-ups that routing and typed access need.
type Table struct {
	all    []*Resource
	byKey  map[schema.GroupResource]*Resource
	byType map[reflect.Type]*Resource
	byKind map[schema.GroupKind]*Resource
}

// NewTable returns a table of resources. It panics when two of them have the same name: the set is fixed at build time.
func NewTable(resources ...[]*Resource) *Table {
	t := &Table{
		byKey:  map[schema.GroupResource]*Resource{},
		byType: map[reflect.Type]*Resource{},
		byKind: map[schema.GroupKind]*Resource{},
	}
	for _, r := range slices.Concat(resources...) {
		if t.byKey[r.GroupResource()] != nil {
			panic(fmt.Sprintf("api: resource %s registered twice", r.Key()))
		}
		t.all = append(t.all, r)
		t.byKey[r.GroupResource()] = r
		if _, ok := t.byKind[r.GroupKind()]; !ok {
			t.byKind[r.GroupKind()] = r
		}
		if _, ok := t.byType[reflect.TypeOf(r.New())]; !ok {
			t.byType[reflect.TypeOf(r.New())] = r
		}
	}
	return t
}

// All resources, in registration order.
func (t *Table) All() iter.Seq[*Resource] { return slices.Values(t.all) }

// Lookup returns the resource with the group and plural name, or nil.
func (t *Table) Lookup(group, plural string) *Resource {
	return t.byKey[schema.GroupResource{Group: group, Resource: plural}]
}

// ForKind returns the resource of a group and kind, or nil.
func (t *Table) ForKind(gk schema.GroupKind) *Resource { return t.byKind[gk] }

// For returns the resource whose storage type is T's. It panics when there is none: T is fixed at build time.
func For[T Object](t *Table) *Resource {
	r := t.byType[reflect.TypeFor[T]()]
	if r == nil {
		panic(fmt.Sprintf("api: no resource for %v", reflect.TypeFor[T]()))
	}
	return r
}

// KindOf returns the kind of an object of a storage type, or the empty kind.
func (t *Table) KindOf(obj Object) schema.GroupVersionKind {
	if r := t.byType[reflect.TypeOf(obj)]; r != nil {
		return r.GroupVersionKind
	}
	return schema.GroupVersionKind{}
}
