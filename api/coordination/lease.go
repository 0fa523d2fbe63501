package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func leases() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Plural:                      "leases",
		Singular:                    "lease",
		Namespaced:                  true,
		New:                         func() api.Object { return new(coordinationv1.Lease) },
		NewList:                     func() runtime.Object { return new(coordinationv1.LeaseList) },
		DisallowUnconditionalUpdate: true,
		CreateOnUpdate:              true,
	}
}
