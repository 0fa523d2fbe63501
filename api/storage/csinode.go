package storage

import (
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func csiNodes() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Plural:                      "csinodes",
		Singular:                    "csinode",
		New:                         func() api.Object { return new(storagev1.CSINode) },
		NewList:                     func() runtime.Object { return new(storagev1.CSINodeList) },
		DisallowUnconditionalUpdate: true,
		Validate: func(obj api.Object) field.ErrorList {
			return validateCSINodeDrivers(obj.(*storagev1.CSINode).Spec.Drivers, field.NewPath("spec", "drivers"))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			at := field.NewPath("spec", "drivers")
			drivers := obj.(*storagev1.CSINode).Spec.Drivers
			errs := validateCSINodeDrivers(drivers, at)
			// A driver that stays under the same name was not re-installed, so it says what it said before.
			for _, before := range old.(*storagev1.CSINode).Spec.Drivers {
				for _, driver := range drivers {
					if driver.Name == before.Name && !equality.Semantic.DeepEqual(driver, before) {
						errs = append(errs, field.Invalid(field.NewPath("CSINodeDriver"), driver, validation.FieldImmutableErrorMsg))
					}
				}
			}
			return errs
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			node := obj.(*storagev1.CSINode)
			return []any{node.Name, int64(len(node.Spec.Drivers)), api.Age(node.CreationTimestamp, now)}
		},
	}
}

func validateCSINodeDrivers(drivers []storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
	const maxNodeID = 192
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, driver := range drivers {
		at := at.Index(i)
		errs = append(errs, validateDriverName(driver.Name, at.Child("name"))...)
		if seen[driver.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), driver.Name))
		}
		seen[driver.Name] = true
		switch n := len(driver.NodeID); {
		case n == 0:
			errs = append(errs, field.Required(at.Child("nodeID"), driver.NodeID))
		case n > maxNodeID:
			errs = append(errs, field.Invalid(at.Child("nodeID"), driver.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			errs = append(errs, rules.NonNegative(at.Child("allocatable", "count"), driver.Allocatable.Count)...)
		}
		keys := map[string]bool{}
		for _, key := range driver.TopologyKeys {
			if key == "" || keys[key] {
				errs = append(errs, field.Required(at.Child("topologyKeys"), key))
			}
			keys[key] = true
			for _, msg := range utilvalidation.IsQualifiedName(key) {
				errs = append(errs, field.Invalid(at.Child("topologyKeys"), driver.TopologyKeys, msg))
			}
		}
	}
	return errs
}
