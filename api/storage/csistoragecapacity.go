package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
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
	}
}
