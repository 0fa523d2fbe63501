package discovery

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func endpointSlices() *api.Resource {
	return &api.Resource{
		GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		Plural:           "endpointslices",
		Singular:         "endpointslice",
		Namespaced:       true,
		New:              func() api.Object { return new(discoveryv1.EndpointSlice) },
		NewList:          func() runtime.Object { return new(discoveryv1.EndpointSliceList) },
		HasGeneration:    true,
	}
}
