package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

// source offers resources to the server. The table is the first; custom and aggregated resources are further ones.
type source interface {
	// lookup returns the resource in a served version, or nil.
	lookup(group, version, plural string) *served
}

// served is a resource in one of its served versions.
type served struct {
	*api.Resource
	// gvk is the kind in this version; version is nil for the storage version.
	gvk     schema.GroupVersionKind
	version *api.Version
	layout  *layout
	prefix  string
	// storage is the same resource in its storage version.
	storage *served
	json    *jsonPlans
	// prefixJSON opens the JSON form of an object: its kind and version, up to the first other field.
	prefixJSON string
}

func keyPrefix(r *api.Resource) string {
	group := r.Group
	if group == "" {
		group = "core"
	}
	return group + "/" + r.Plural + "/"
}

// key of an object in the store.
func (v *served) key(namespace, name string) string {
	if v.Namespaced {
		return v.prefix + namespace + "/" + name
	}
	return v.prefix + name
}

// scope is the key prefix of a namespace, or of everything.
func (v *served) scope(namespace string) string {
	if v.Namespaced && namespace != "" {
		return v.prefix + namespace + "/"
	}
	return v.prefix
}

func (v *served) newObject() api.Object {
	if v.version != nil {
		return v.version.New()
	}
	return v.New()
}

func (v *served) newList() runtime.Object {
	if v.version != nil {
		return v.version.NewList()
	}
	return v.NewList()
}

// toStorage turns a private object of this version into a private one of the storage version, with defaults.
func (v *served) toStorage(obj api.Object) (api.Object, error) {
	if v.version != nil {
		if v.version.Default != nil {
			v.version.Default(obj)
		}
		var err error
		if obj, err = v.version.ToStorage(obj); err != nil {
			return nil, err
		}
	}
	if v.Default != nil {
		v.Default(obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, nil
}

// fromStorage gives an object of the storage version in this version: the same, shared one when they are equal.
func (v *served) fromStorage(obj api.Object) (api.Object, error) {
	if v.version == nil {
		return obj, nil
	}
	return v.version.FromStorage(obj.DeepCopyObject().(api.Object))
}

// tableSource serves the built-in table.
type tableSource struct {
	byName     map[schema.GroupVersionResource]*served
	byResource map[*api.Resource]*served
	byPrefix   map[string]*served
	byKind     map[schema.GroupVersionKind]*served
	groups     map[schema.GroupVersion]bool
}

func newTableSource(t *api.Table) *tableSource {
	s := &tableSource{
		byName:     map[schema.GroupVersionResource]*served{},
		byResource: map[*api.Resource]*served{},
		byPrefix:   map[string]*served{},
		byKind:     map[schema.GroupVersionKind]*served{},
		groups:     map[schema.GroupVersion]bool{},
	}
	plans := &jsonPlans{}
	for r := range t.All() {
		first := newServed(r, nil, plans)
		s.add(first)
		s.byResource[r], s.byPrefix[first.prefix] = first, first
		for i := range r.Versions {
			v := newServed(r, &r.Versions[i], plans)
			v.storage = first
			s.add(v)
		}
	}
	return s
}

func newServed(r *api.Resource, version *api.Version, json *jsonPlans) *served {
	v := &served{Resource: r, gvk: r.GroupVersionKind, version: version, prefix: keyPrefix(r), layout: layoutOf(r.New()), json: json}
	v.storage = v
	if version != nil {
		v.gvk.Version = version.Name
		if version.Group != "" {
			v.gvk.Group = version.Group
		}
	}
	v.prefixJSON = `{"kind":"` + v.gvk.Kind + `","apiVersion":"` + v.gvk.GroupVersion().String() + `"`
	return v
}

func (s *tableSource) add(v *served) {
	s.byName[v.gvk.GroupVersion().WithResource(v.Plural)] = v
	if s.byKind[v.gvk] == nil {
		s.byKind[v.gvk] = v
	}
	s.groups[v.gvk.GroupVersion()] = true
}

func (s *tableSource) lookup(group, version, plural string) *served {
	return s.byName[schema.GroupVersionResource{Group: group, Version: version, Resource: plural}]
}

// lookup asks all sources.
func (s *Server) lookup(group, version, plural string) *served {
	for _, source := range s.sources {
		if v := source.lookup(group, version, plural); v != nil {
			return v
		}
	}
	return nil
}

// servedFor is the storage version of a resource of the table.
func (s *Server) servedFor(r *api.Resource) *served {
	if v := s.builtin.byResource[r]; v != nil {
		return v
	}
	return s.lookup(r.Group, r.GroupVersionKind.Version, r.Plural)
}
