package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func csiDrivers() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("CSIDriver"),
		Plural:                      "csidrivers",
		Singular:                    "csidriver",
		New:                         func() api.Object { return new(storagev1.CSIDriver) },
		NewList:                     func() runtime.Object { return new(storagev1.CSIDriverList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
