package node

import (
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func runtimeClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Plural:                      "runtimeclasses",
		Singular:                    "runtimeclass",
		New:                         func() api.Object { return new(nodev1.RuntimeClass) },
		NewList:                     func() runtime.Object { return new(nodev1.RuntimeClassList) },
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
