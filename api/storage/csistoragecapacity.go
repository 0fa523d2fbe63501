package storage

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func csiStorageCapacities() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
		Plural:                      "csistoragecapacities",
		Singular:                    "csistoragecapacity",
		Namespaced:                  true,
		New:                         func() api.Object { return new(storagev1.CSIStorageCapacity) },
		NewList:                     func() runtime.Object { return new(storagev1.CSIStorageCapacityList) },
		DisallowUnconditionalUpdate: true,
		Validate:                    func(obj api.Object) field.ErrorList { return validateCapacity(obj.(*storagev1.CSIStorageCapacity)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			c, o := obj.(*storagev1.CSIStorageCapacity), old.(*storagev1.CSIStorageCapacity)
			errs := append(validateCapacity(c), validation.ValidateImmutableField(c.NodeTopology, o.NodeTopology, field.NewPath("nodeTopology"))...)
			return append(errs, validation.ValidateImmutableField(c.StorageClassName, o.StorageClassName, field.NewPath("storageClassName"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("StorageClassName", rules.Doc(storagev1.CSIStorageCapacity{}, "storageClassName")),
			api.Text("Capacity", rules.Doc(storagev1.CSIStorageCapacity{}, "capacity")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			c := obj.(*storagev1.CSIStorageCapacity)
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = c.Capacity.String()
			}
			return []any{c.Name, c.StorageClassName, capacity}
		},
	}
}

func validateCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.NameIsDNSSubdomain(c.StorageClassName, false) {
		errs = append(errs, field.Invalid(field.NewPath("storageClassName"), c.StorageClassName, msg))
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(c.NodeTopology, metavalidation.LabelSelectorValidationOptions{}, field.NewPath("nodeTopology"))...)
	for _, f := range []struct {
		name  string
		value *resource.Quantity
	}{{"capacity", c.Capacity}, {"maximumVolumeSize", c.MaximumVolumeSize}} {
		if f.value != nil && f.value.Sign() < 0 {
			errs = append(errs, field.Invalid(field.NewPath(f.name), f.value.String(), validation.IsNegativeErrorMsg))
		}
	}
	return errs
}
