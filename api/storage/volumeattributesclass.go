package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	storagev1alpha1 "k8s.io/api/storage/v1alpha1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
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
	}
}
