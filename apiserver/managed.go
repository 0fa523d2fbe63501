package apiserver

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"proa/api"
)

// typeConverter looks at objects as field management wants them. It does not validate those of Go's types, which cannot
// be malformed: that would double the cost of every write.
type typeConverter struct {
	managedfields.TypeConverter
	schemas sync.Map // schema.GroupVersionKind -> *smd.TypedValue, whose schema and type are those of the kind
}

func newTypeConverter(scheme *runtime.Scheme) managedfields.TypeConverter {
	return &typeConverter{TypeConverter: applyconfigurations.NewTypeConverter(scheme)}
}

func (c *typeConverter) ObjectToTyped(obj runtime.Object, opts ...smd.ValidationOptions) (*smd.TypedValue, error) {
	if _, general := obj.(runtime.Unstructured); general || !slices.Contains(opts, smd.AllowDuplicates) {
		return c.TypeConverter.ObjectToTyped(obj, opts...)
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	known, ok := c.schemas.Load(gvk)
	if !ok {
		first, err := c.TypeConverter.ObjectToTyped(obj, opts...)
		if err != nil {
			return nil, err
		}
		// Its value, unlike its type, is not to be kept.
		known, _ = c.schemas.LoadOrStore(gvk, smd.AsTypedUnvalidated(nil, first.Schema(), first.TypeRef()))
	}
	of := known.(*smd.TypedValue)
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	return smd.AsTypedUnvalidated(v, of.Schema(), of.TypeRef()), nil
}

// managers are the field managers of the kinds, made when they are first needed.
type managers struct {
	byName sync.Map // managerKey -> *managedfields.FieldManager
}

type managerKey struct {
	gvk         schema.GroupVersionKind
	subresource string
}

func (s *Server) fieldManager(v *served, subresource string) (*managedfields.FieldManager, error) {
	key := managerKey{v.gvk, subresource}
	if m, ok := s.managers.byName.Load(key); ok {
		return m.(*managedfields.FieldManager), nil
	}
	reset := map[fieldpath.APIVersion]fieldpath.Filter{}
	version := fieldpath.APIVersion(v.gvk.GroupVersion().String())
	switch {
	case subresource == "status":
		reset[version] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("spec")))
	case subresource == "" && v.HasStatus():
		reset[version] = fieldpath.NewExcludeSetFilter(fieldpath.NewSet(fieldpath.MakePathOrDie("status")))
	}
	m, err := managedfields.NewDefaultFieldManager(s.types(), converter{s}, defaulter{s}, creater{s}, v.gvk, v.gvk.GroupVersion(), subresource, reset)
	if err != nil {
		return nil, fmt.Errorf("make the field manager of %s: %w", v.gvk, err)
	}
	got, _ := s.managers.byName.LoadOrStore(key, m)
	return got.(*managedfields.FieldManager), nil
}

// manage returns a function that records the changes of an update or a patch in the managed fields.
func (s *Server) manage(t *target) func(old, obj api.Object) (api.Object, error) {
	return func(old, obj api.Object) (api.Object, error) {
		if !s.managesAll(t, old, obj) {
			return s.manageChange(t, old, obj)
		}
		at := now()
		entries := slices.Clone(obj.GetManagedFields())
		entries[0].Time = &at
		obj.SetManagedFields(entries)
		return obj, nil
	}
}

// manageChange is the general way.
func (s *Server) manageChange(t *target, old, obj api.Object) (api.Object, error) {
	m, err := s.fieldManager(t.served, t.subresource)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	live := old
	if live == nil {
		live = t.New()
	}
	before, after := typed(t.storage, live), typed(t.storage, obj)
	if len(t.Versions) == 0 {
		// What this request cannot change need not be compared.
		switch {
		case t.subresource == "status":
			t.layout.clearRest(before)
			t.layout.clearRest(after)
		case t.subresource == "" && t.HasStatus():
			t.layout.clearStatus(before)
			t.layout.clearStatus(after)
		}
	}
	result := m.UpdateNoErrors(before, after, t.manager).(api.Object)
	obj.SetManagedFields(result.GetManagedFields())
	return wholeSeconds(obj), nil
}

// managesAll reports whether an update changes nothing about who manages what, but for the time: t's manager alone has all
// that the object had and has. Heartbeats are such updates.
func (s *Server) managesAll(t *target, old, obj api.Object) bool {
	if old == nil || t.served != t.storage || t.subresource != "" {
		return false
	}
	entries := old.GetManagedFields()
	if len(entries) != 1 || !slices.EqualFunc(entries, obj.GetManagedFields(), sameManager) {
		return false
	}
	e := entries[0]
	if e.Manager != t.manager || e.Operation != metav1.ManagedFieldsOperationUpdate || e.Subresource != "" ||
		e.APIVersion != t.gvk.GroupVersion().String() || e.FieldsType != "FieldsV1" || t.layout.sameRest(obj, old) {
		return false
	}
	plan := s.createPlan(t.served, obj)
	if plan == nil {
		return false
	}
	for _, o := range []api.Object{obj, old} {
		same := false
		if !plan.fieldSet(reflect.ValueOf(o).Elem(), func(set []byte) { same = string(set) == e.FieldsV1.GetRawString() }) || !same {
			return false
		}
	}
	return true
}

// typed gives a shallow copy of an object its kind: field management wants to see it, and stored objects lack it.
func typed(v *served, obj api.Object) api.Object {
	if _, general := obj.(runtime.Unstructured); general {
		obj = obj.DeepCopyObject().(api.Object) // its kind is deep inside
	} else {
		obj = shallow(obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(v.gvk)
	return obj
}

// wholeSeconds gives the times of managed fields the precision that they have in JSON. Otherwise a client's copy would
// differ from the object, and writing it back would count as a change.
func wholeSeconds(obj api.Object) api.Object {
	fields := obj.GetManagedFields()
	for i, f := range fields {
		if f.Time != nil && f.Time.Nanosecond() != 0 {
			at := f.Time.Rfc3339Copy()
			fields[i].Time = &at
		}
	}
	return obj
}

// managerName is the manager of a request that does not name one: the program's name in the user agent.
func managerName(given, agent string) string {
	if given != "" {
		return given
	}
	agent, _, _ = strings.Cut(agent, "/")
	if agent == "" {
		return "unknown"
	}
	return agent[:min(len(agent), 128)]
}

// converter translates between the served versions of a kind.
type converter struct{ s *Server }

func (c converter) Convert(in, out, _ any) error {
	return fmt.Errorf("convert %T to %T: unsupported", in, out)
}

func (c converter) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (c converter) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	obj, ok := in.(api.Object)
	if !ok {
		return in, nil
	}
	from := c.s.builtin.byKind[in.GetObjectKind().GroupVersionKind()]
	if from == nil {
		return in, nil
	}
	if u, ok := in.(*unstructured.Unstructured); ok {
		// The result of a merge comes in the general form.
		obj = from.newObject()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj); err != nil {
			return nil, err
		}
		in = obj
	}
	gvk, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from.gvk, from.storage.gvk})
	if !ok || gvk == from.gvk {
		return in, nil
	}
	to := c.s.builtin.byKind[gvk]
	if to == nil || to.Resource != from.Resource {
		// The manager's entry names a version that is not served any more.
		return nil, runtime.NewNotRegisteredErrForKind("proa", gvk)
	}
	if from.version != nil {
		var err error
		if obj, err = from.version.ToStorage(obj.DeepCopyObject().(api.Object)); err != nil {
			return nil, err
		}
	}
	obj, err := to.fromStorage(obj)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

type defaulter struct{ s *Server }

func (d defaulter) Default(in runtime.Object) {
	v := d.s.builtin.byKind[in.GetObjectKind().GroupVersionKind()]
	obj, ok := in.(api.Object)
	if v == nil || !ok {
		return
	}
	if v.version != nil {
		if v.version.Default != nil {
			v.version.Default(obj)
		}
	} else if v.Default != nil {
		v.Default(obj)
	}
}

type creater struct{ s *Server }

// New returns an empty object that says of what kind it is.
func (c creater) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	obj, err := c.s.scheme.New(gvk)
	if err == nil {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	return obj, err
}
