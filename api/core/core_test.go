package core

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"proa/api"
)

func TestResourcesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Resources() {
		t.Run(r.Plural, func(t *testing.T) {
			if seen[r.Plural] {
				t.Errorf("%s is listed twice", r.Plural)
			}
			seen[r.Plural] = true
			if r.Singular == "" || r.Kind == "" || r.New == nil || r.NewList == nil {
				t.Fatalf("%s lacks a name or a constructor", r.Plural)
			}
			if r.Cells != nil {
				if cells := r.Cells(r.New(), time.Now()); len(cells) != len(r.Columns) {
					t.Errorf("%d cells for %d columns", len(cells), len(r.Columns))
				}
			}
			for _, c := range r.Columns {
				if c.Name == "" || c.Type == "" || c.Description == "" {
					t.Errorf("column %+v lacks name, type or description", c)
				}
			}
			if (r.FieldValue == nil) != (len(r.FieldNames) == 0) {
				t.Error("field names and values do not go together")
			}
			for _, name := range r.FieldNames {
				r.FieldValue(r.New(), name)
			}
			defaultTwice(t, r)
			validateEmpty(r)
		})
	}
	if len(seen) != 17 {
		t.Errorf("%d kinds, want 17", len(seen))
	}
}

// defaultTwice checks that defaulting what has been defaulted changes nothing.
func defaultTwice(t *testing.T, r *api.Resource) {
	if r.Default == nil {
		return
	}
	obj := r.New()
	obj.SetName("a")
	r.Default(obj)
	again := obj.DeepCopyObject().(api.Object)
	r.Default(again)
	if !equality.Semantic.DeepEqual(obj, again) {
		t.Errorf("defaulting twice gives something else: %+v, then %+v", obj, again)
	}
}

// validateEmpty calls everything with empty objects, which must not panic.
func validateEmpty(r *api.Resource) {
	if r.Validate != nil {
		r.Validate(r.New())
	}
	if r.ValidateUpdate != nil {
		r.ValidateUpdate(r.New(), r.New())
	}
	if r.ValidateStatusUpdate != nil {
		r.ValidateStatusUpdate(r.New(), r.New())
	}
	if r.PrepareCreate != nil {
		r.PrepareCreate(r.New())
	}
	if r.PrepareUpdate != nil {
		r.PrepareUpdate(r.New(), r.New())
	}
	if r.PrepareStatusUpdate != nil {
		r.PrepareStatusUpdate(r.New(), r.New())
	}
	if r.Warnings != nil {
		r.Warnings(r.New(), nil)
		r.Warnings(r.New(), r.New())
	}
	if r.GracePeriod != nil {
		r.GracePeriod(r.New(), nil)
	}
}
