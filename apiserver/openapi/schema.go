package openapi

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/applyconfigurations"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"proa/api"
)

// modelNamed is what generated types say about their name.
type modelNamed interface{ OpenAPIModelName() string }

// documented is what generated types say about their fields, by JSON name; "" is the type itself.
type documented interface{ SwaggerDoc() map[string]string }

// schemas collects the definitions that a set of types needs, by reflection.
type schemas struct {
	prefix string // of references: #/definitions/ or #/components/schemas/
	lists  *smd.Schema
	kinds  map[reflect.Type][]schema.GroupVersionKind
	defs   map[string]*spec.Schema
}

// listTypes is the schema that server-side apply merges by: it knows list types and their keys.
func listTypes(scheme *runtime.Scheme, sample runtime.Object) *smd.Schema {
	typed, err := applyconfigurations.NewTypeConverter(scheme).ObjectToTyped(sample)
	if err != nil {
		return &smd.Schema{}
	}
	return typed.Schema()
}

// ref returns a reference to the definition of a struct type and makes sure that it exists.
func (s *schemas) ref(t reflect.Type) spec.Schema {
	name := modelName(t)
	if _, ok := s.defs[name]; !ok {
		def := &spec.Schema{}
		s.defs[name] = def // before its fields: types may contain themselves
		s.define(def, t, name)
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}

func modelName(t reflect.Type) string {
	if m, ok := reflect.Zero(t).Interface().(modelNamed); ok {
		return m.OpenAPIModelName()
	}
	path := strings.Split(t.PkgPath(), "/")
	if host := strings.Split(path[0], "."); len(host) > 1 {
		slices.Reverse(host)
		path[0] = strings.Join(host, ".")
	}
	return strings.Join(path, ".") + "." + t.Name()
}

// special types have a form of their own in JSON.
func special(name string) (spec.SchemaProps, bool) {
	switch name {
	case "io.k8s.apimachinery.pkg.api.resource.Quantity":
		return spec.SchemaProps{Type: []string{"string"}}, true
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
		return spec.SchemaProps{Type: []string{"string"}, Format: "int-or-string"}, true
	case "io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":
		return spec.SchemaProps{Type: []string{"string"}, Format: "date-time"}, true
	case "io.k8s.apimachinery.pkg.apis.meta.v1.Duration":
		return spec.SchemaProps{Type: []string{"string"}}, true
	case "io.k8s.apimachinery.pkg.runtime.RawExtension", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":
		return spec.SchemaProps{Type: []string{"object"}}, true
	}
	return spec.SchemaProps{}, false
}

func (s *schemas) define(def *spec.Schema, t reflect.Type, name string) {
	docs := map[string]string{}
	if d, ok := reflect.New(t).Elem().Interface().(documented); ok {
		docs = d.SwaggerDoc()
	}
	def.Description = docs[""]
	if props, ok := special(name); ok {
		props.Description = def.Description
		def.SchemaProps = props
		return
	}
	def.Type = []string{"object"}
	def.Properties = map[string]spec.Schema{}
	s.fields(def, t, docs, s.mapOf(name))
	if len(def.Properties) == 0 {
		def.Properties = nil
	}
	slices.Sort(def.Required)
	if kinds := s.kinds[t]; len(kinds) > 0 {
		var list []any
		for _, k := range kinds {
			list = append(list, map[string]any{"group": k.Group, "kind": k.Kind, "version": k.Version})
		}
		def.AddExtension("x-kubernetes-group-version-kind", list)
	}
	if m := s.mapOf(name); m != nil && m.ElementRelationship == smd.Atomic {
		def.AddExtension("x-kubernetes-map-type", "atomic")
	}
}

// fields adds a struct's fields; embedded structs add theirs.
func (s *schemas) fields(def *spec.Schema, t reflect.Type, docs map[string]string, merge *smd.Map) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag[0] == "-" || api.IsNewer(t, f.Name) {
			continue
		}
		if tag[0] == "" {
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if f.Anonymous && inner.Kind() == reflect.Struct {
				d := map[string]string{}
				if x, ok := reflect.New(inner).Elem().Interface().(documented); ok {
					d = x.SwaggerDoc()
				}
				s.fields(def, inner, d, merge)
			}
			continue
		}
		prop := s.value(f.Type)
		if d := docs[tag[0]]; d != "" {
			prop = describe(prop, d)
		}
		if strategy := f.Tag.Get("patchStrategy"); strategy != "" {
			prop.AddExtension("x-kubernetes-patch-strategy", strategy)
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			prop.AddExtension("x-kubernetes-patch-merge-key", key)
		}
		if merge != nil {
			listExtensions(&prop, merge, tag[0])
		}
		def.Properties[tag[0]] = prop
		if !slices.Contains(tag[1:], "omitempty") && !slices.Contains(tag[1:], "omitzero") && f.Type.Kind() != reflect.Pointer && !optional(tag[0]) {
			def.Required = append(def.Required, tag[0])
		}
	}
}

// optional names fields that are written even when empty, but need not be given.
func optional(name string) bool {
	return name == "status" || name == "metadata" || name == "creationTimestamp"
}

// describe adds a description; a reference carries it beside the reference.
func describe(s spec.Schema, text string) spec.Schema {
	if s.Ref.String() != "" {
		return spec.Schema{SchemaProps: spec.SchemaProps{Description: text, AllOf: []spec.Schema{s}}}
	}
	s.Description = text
	return s
}

func (s *schemas) value(t reflect.Type) spec.Schema {
	props := spec.SchemaProps{}
	switch t.Kind() {
	case reflect.Pointer:
		return s.value(t.Elem())
	case reflect.Struct:
		return s.ref(t)
	case reflect.String:
		props.Type = []string{"string"}
	case reflect.Bool:
		props.Type = []string{"boolean"}
	case reflect.Int32, reflect.Uint32, reflect.Int16, reflect.Uint16, reflect.Int8, reflect.Uint8:
		props.Type, props.Format = []string{"integer"}, "int32"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint:
		props.Type, props.Format = []string{"integer"}, "int64"
	case reflect.Float32, reflect.Float64:
		props.Type, props.Format = []string{"number"}, "double"
	case reflect.Map:
		elem := s.value(t.Elem())
		props.Type = []string{"object"}
		props.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &elem}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			props.Type, props.Format = []string{"string"}, "byte"
			break
		}
		elem := s.value(t.Elem())
		props.Type = []string{"array"}
		props.Items = &spec.SchemaOrArray{Schema: &elem}
	}
	return spec.Schema{SchemaProps: props}
}

func (s *schemas) mapOf(name string) *smd.Map {
	if s.lists == nil {
		return nil
	}
	def, ok := s.lists.FindNamedType(name)
	if !ok || def.Map == nil {
		return nil
	}
	return def.Map
}

// listExtensions says how a list field merges.
func listExtensions(prop *spec.Schema, m *smd.Map, field string) {
	f, ok := m.FindField(field)
	if !ok {
		return
	}
	if f.Type.Inlined.Map != nil && f.Type.Inlined.Map.ElementRelationship == smd.Atomic && prop.AdditionalProperties != nil {
		prop.AddExtension("x-kubernetes-map-type", "atomic")
	}
	l := f.Type.Inlined.List
	if l == nil || len(prop.Type) == 0 || prop.Type[0] != "array" {
		return
	}
	switch {
	case l.ElementRelationship == smd.Associative && len(l.Keys) > 0:
		prop.AddExtension("x-kubernetes-list-type", "map")
		prop.AddExtension("x-kubernetes-list-map-keys", l.Keys)
	case l.ElementRelationship == smd.Associative:
		prop.AddExtension("x-kubernetes-list-type", "set")
	default:
		prop.AddExtension("x-kubernetes-list-type", "atomic")
	}
}
