package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func storageClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("StorageClass"),
		Plural:           "storageclasses",
		Singular:         "storageclass",
		ShortNames:       []string{"sc"},
		New:              func() api.Object { return new(storagev1.StorageClass) },
		NewList:          func() runtime.Object { return new(storagev1.StorageClassList) },
	}
}
