package apiserver

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/api"
	"proa/api/builtin"
	"proa/store"
)

// filler gives values to the fields of objects by lot: some, with few different texts, so that lists have equal items at
// times.
type filler struct{ *rand.Rand }

func (f filler) fill(v reflect.Value, depth int) {
	switch o := v.Addr().Interface().(type) {
	case *metav1.ObjectMeta:
		o.Name, o.GenerateName, o.UID = f.text(), f.text(), "u"
		if f.IntN(2) == 0 {
			o.Labels = map[string]string{f.text(): "", "app": f.text()}
			o.Finalizers = []string{f.text(), f.text()}
			o.OwnerReferences = []metav1.OwnerReference{{UID: "2", Name: f.text()}, {UID: "1", Controller: new(bool)}}
		}
		return
	case *metav1.Time:
		*o = metav1.Unix(int64(f.IntN(3)), 0)
		return
	case *metav1.MicroTime:
		*o = metav1.NewMicroTime(time.Unix(int64(f.IntN(3)), 0))
		return
	case *resource.Quantity:
		*o = *resource.NewQuantity(int64(f.IntN(3)), resource.DecimalSI)
		return
	case *runtime.RawExtension:
		o.Raw = []byte(`{"a":1}`)
		return
	case *intstr.IntOrString:
		*o = intstr.FromInt32(int32(f.IntN(3)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.IntN(4)))
	case reflect.Float64:
		v.SetFloat(float64(f.IntN(4)))
	case reflect.Pointer:
		if depth > 0 && f.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && f.IntN(3) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), f.IntN(3), 4))
			for i := range v.Len() {
				f.fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 && f.IntN(2) == 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range f.IntN(3) {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(k, depth-1)
				f.fill(e, depth-1)
				v.SetMapIndex(k, e)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() && t.Name != "TypeMeta" && f.IntN(3) > 0 {
				f.fill(v.Field(i), depth-1)
			}
		}
	}
}

func (f filler) text() string {
	return []string{"", "a", "b", "c", "example.com/x-y", "ü\"<"}[f.IntN(6-f.IntN(2))]
}

// TestFieldSetIsTheGeneralOne compares the short way of managed fields with the general one, for all kinds.
func TestFieldSetIsTheGeneralOne(t *testing.T) {
	s := bareServer(t)
	f := filler{rand.New(rand.NewPCG(1, 2))}
	for _, v := range s.builtin.byResource {
		if v.Virtual {
			continue
		}
		t.Run(v.Key(), func(t *testing.T) {
			short, tried := 0, 0
			for i := range 60 {
				obj := v.New()
				f.fill(reflect.ValueOf(obj).Elem(), i%14)
				v.layout.clearStatus(obj)
				at := &target{served: v, manager: "me"}
				want, err := s.manage(at)(nil, obj.DeepCopyObject().(api.Object))
				if err != nil {
					t.Fatal(err)
				}
				got := obj.DeepCopyObject().(api.Object)
				tried++
				if !s.manageNew(at, got) {
					continue
				}
				short++
				if diff := cmp.Diff(sets(want), sets(got)); diff != "" {
					t.Fatalf("managed fields differ (-general +short):\n%s", diff)
				}
			}
			if short < tried/4 {
				t.Errorf("only %d of %d objects went the short way", short, tried)
			}
		})
	}
}

func sets(obj api.Object) (out []string) {
	for _, m := range obj.GetManagedFields() {
		out = append(out, fmt.Sprintf("%s %s %s %q %s", m.Manager, m.Operation, m.APIVersion, m.Subresource, m.FieldsV1.GetRawString()))
	}
	return out
}

func bareServer(tb testing.TB) *Server {
	tb.Helper()
	table := builtin.Table()
	st, err := store.Open(tb.Context(), store.Config{Decode: Decode(table)})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := New(Config{Table: table, Store: st})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.dispatch.close()
		if err := st.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// BenchmarkManageNewPod records the manager of a new pod's fields.
func BenchmarkManageNewPod(b *testing.B) {
	s := bareServer(b)
	v := s.lookup("", "v1", "pods")
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: "Always", Containers: []corev1.Container{{
		Name: "main", Image: "image", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: "TCP"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		Env:       []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}},
	}}}}
	pod.Name, pod.Labels = "pod", map[string]string{"app": "bench"}
	at := &target{served: v, manager: "me"}
	for name, manage := range map[string]func(obj api.Object) (api.Object, error){
		"short":   s.manageCreate(at),
		"general": func(obj api.Object) (api.Object, error) { return s.manage(at)(nil, obj) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pod.ManagedFields = nil
				if _, err := manage(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestUnchanged compares objects as updates do with the general comparison, which the times of managed fields are kept from.
func TestUnchanged(t *testing.T) {
	f := filler{rand.New(rand.NewPCG(3, 4))}
	l := layoutOf(&corev1.Pod{})
	pod := func() *corev1.Pod {
		p := &corev1.Pod{}
		f.fill(reflect.ValueOf(p).Elem(), 12)
		p.ManagedFields = nil
		at := metav1.Unix(5, 0)
		for range 2 {
			p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: f.text(), Time: &at, FieldsV1: metav1.NewFieldsV1(f.text())})
		}
		return p
	}
	for range 200 {
		old := pod()
		obj := old.DeepCopy()
		switch f.IntN(5) {
		case 0:
			obj.Status = pod().Status
		case 3:
			obj.ManagedFields[1].FieldsV1 = metav1.NewFieldsV1(f.text())
		case 1:
			obj.ManagedFields[0].Time = &metav1.Time{Time: time.Unix(int64(5+f.IntN(2)), 0)}
		case 2:
			obj.Spec = pod().Spec
		}
		timeless := obj.DeepCopy()
		for i := range timeless.ManagedFields {
			timeless.ManagedFields[i].Time = old.ManagedFields[i].Time
		}
		if got, want := unchanged(l, obj, old), equality.Semantic.DeepEqual(timeless, old); got != want {
			t.Fatalf("unchanged %v, want %v:\n%s", got, want, cmp.Diff(old, obj))
		}
	}
}
