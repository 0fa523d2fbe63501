package storage

import (
	"maps"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func volumeAttributesClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"),
		Plural:           "volumeattributesclasses",
		Singular:         "volumeattributesclass",
		ShortNames:       []string{"vac"},
		New:              func() api.Object { return new(storagev1.VolumeAttributesClass) },
		NewList:          func() runtime.Object { return new(storagev1.VolumeAttributesClassList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(storagev1.VolumeAttributesClass) }, func() api.Object { return new(storagev1beta1.VolumeAttributesClass) },
				func() runtime.Object { return new(storagev1beta1.VolumeAttributesClassList) }),
			api.Twin("v1alpha1", func() api.Object { return new(storagev1.VolumeAttributesClass) }, func() api.Object { return new(storagev1alpha1.VolumeAttributesClass) },
				func() runtime.Object { return new(storagev1alpha1.VolumeAttributesClassList) }),
		},
		Validate: func(obj api.Object) field.ErrorList {
			vac := obj.(*storagev1.VolumeAttributesClass)
			errs := validateDriverName(vac.DriverName, field.NewPath("driverName"))
			return append(errs, validateParameters(vac.Parameters, false, field.NewPath("parameters"))...)
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			vac, o := obj.(*storagev1.VolumeAttributesClass), old.(*storagev1.VolumeAttributesClass)
			var errs field.ErrorList
			if vac.DriverName != o.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			if !maps.Equal(vac.Parameters, o.Parameters) {
				errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
			}
			return errs
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("DriverName", rules.Doc(storagev1.VolumeAttributesClass{}, "driverName")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			vac := obj.(*storagev1.VolumeAttributesClass)
			return []any{vac.Name, vac.DriverName, api.Age(vac.CreationTimestamp, now)}
		},
	}
}
