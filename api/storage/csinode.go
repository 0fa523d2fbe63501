package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func csiNodes() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            storagev1.SchemeGroupVersion.WithKind("CSINode"),
		Plural:                      "csinodes",
		Singular:                    "csinode",
		New:                         func() api.Object { return new(storagev1.CSINode) },
		NewList:                     func() runtime.Object { return new(storagev1.CSINodeList) },
		DisallowUnconditionalUpdate: true,
	}
}
