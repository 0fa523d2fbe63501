package apiserver

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/api"
)

// TestManagesAll compares the short way of updates with the general one.
func TestManagesAll(t *testing.T) {
	s := bareServer(t)
	f := filler{rand.New(rand.NewPCG(5, 6))}
	short := 0
	for _, v := range s.builtin.byResource {
		if v.Virtual {
			continue
		}
		at := &target{served: v, manager: "me"}
		for i := range 30 {
			old := v.New()
			f.fill(reflect.ValueOf(old).Elem(), i%14)
			v.layout.clearStatus(old)
			old.SetManagedFields(nil)
			old, err := s.manageChange(at, nil, old)
			if err != nil {
				t.Fatal(err)
			}
			obj := old.DeepCopyObject().(api.Object)
			for _, field := range v.layout.rest {
				f.alter(reflect.ValueOf(obj).Elem().Field(field), i%3 == 0)
			}
			if !s.managesAll(at, old, obj) {
				continue
			}
			short++
			want, err := s.manageChange(at, old, obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sets(want), sets(old)); diff != "" {
				t.Fatalf("%s: managed fields differ (-general +short):\n%s", v.Key(), diff)
			}
		}
	}
	if short < 100 {
		t.Errorf("only %d updates went the short way", short)
	}
}

// alter changes texts and numbers of a value, to nothing too if it may.
func (f filler) alter(v reflect.Value, empty bool) {
	if v.Type() == reflect.TypeFor[intstr.IntOrString]() {
		return // not every number is a type
	}
	switch v.Kind() {
	case reflect.String:
		switch {
		case v.Len() > 0 && empty && f.IntN(4) == 0:
			v.SetString("")
		case v.Len() > 0:
			v.SetString(v.String() + strings.Repeat("x", f.IntN(2)))
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if empty || v.Int() != 0 {
			v.SetInt(int64(f.IntN(3)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			f.alter(v.Elem(), empty)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !v.Type().Field(i).Anonymous {
				f.alter(v.Field(i), empty)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			f.alter(v.Index(i), empty)
		}
	}
}

// BenchmarkRenewLease records the manager of a heartbeat.
func BenchmarkRenewLease(b *testing.B) {
	s := bareServer(b)
	at := &target{served: s.lookup("coordination.k8s.io", "v1", "leases"), manager: "me"}
	holder, seconds := "node", int32(40)
	old, err := s.manageCreate(at)(&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}})
	if err != nil {
		b.Fatal(err)
	}
	obj := old.DeepCopyObject().(*coordinationv1.Lease)
	*obj.Spec.LeaseDurationSeconds++
	for name, manage := range map[string]func() (api.Object, error){
		"short":   func() (api.Object, error) { return s.manage(at)(old, obj) },
		"general": func() (api.Object, error) { return s.manageChange(at, old, obj) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj.ManagedFields = old.GetManagedFields()
				if _, err := manage(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
