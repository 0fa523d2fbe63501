package apiserver

import (
	"reflect"
	"sync"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa/api"
)

// createPlans are the plans of field sets for creates, by kind, made when they are first needed.
type createPlans struct {
	mu      sync.Mutex
	planner *planner
	byKind  sync.Map // *served -> *fieldPlan
}

// manageCreate returns a function that records who manages the fields of a new object.
func (s *Server) manageCreate(t *target) func(obj api.Object) (api.Object, error) {
	general := s.manage(t)
	return func(obj api.Object) (api.Object, error) {
		if s.manageNew(t, obj) {
			return obj, nil
		}
		return general(nil, obj)
	}
}

// manageNew is the way of plain creates: one manager has everything. It says no when that takes more thought.
func (s *Server) manageNew(t *target, obj api.Object) bool {
	if t.served != t.storage || t.subresource != "" || obj.GetManagedFields() != nil || !utf8.ValidString(t.manager) {
		return false
	}
	plan := s.createPlan(t.served, obj)
	if plan == nil {
		return false
	}
	return plan.fieldSet(reflect.ValueOf(obj).Elem(), func(set []byte) {
		if len(set) == 0 {
			return
		}
		at := now()
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: t.manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: t.gvk.GroupVersion().String(),
			Time: &at, FieldsType: "FieldsV1", FieldsV1: s.fieldSets.of(set, nil),
		}})
	})
}

// createPlan is nil for kinds without one.
func (s *Server) createPlan(v *served, obj api.Object) *fieldPlan {
	if p, ok := s.plans.byKind.Load(v); ok {
		return p.(*fieldPlan)
	}
	s.plans.mu.Lock()
	defer s.plans.mu.Unlock()
	p := s.newCreatePlan(v, obj)
	s.plans.byKind.Store(v, p)
	return p
}

func (s *Server) newCreatePlan(v *served, obj api.Object) *fieldPlan {
	if _, ok := obj.(*unstructured.Unstructured); ok {
		return nil
	}
	empty := v.New()
	empty.GetObjectKind().SetGroupVersionKind(v.gvk)
	of, err := s.types().ObjectToTyped(empty)
	if err != nil {
		return nil
	}
	if s.plans.planner == nil {
		s.plans.planner = &planner{of.Schema(), map[plannedType]*fieldPlan{}}
	}
	p := s.plans.planner.plan(reflect.TypeOf(obj), of.TypeRef())
	if p.kind != structure {
		return nil
	}
	p = p.without("apiVersion", "kind")
	if v.HasStatus() {
		p = p.without("status")
	}
	for i := range p.fields {
		if f := &p.fields[i]; f.name == "metadata" && f.plan.kind == structure {
			// Nobody manages metadata as such.
			f.plan, f.inZero = f.plan.without("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName",
				"generation", "managedFields", "resourceVersion"), true
		}
	}
	return p
}
