package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func serviceCIDRs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
		Plural:           "servicecidrs",
		Singular:         "servicecidr",
		New:              func() api.Object { return new(networkingv1.ServiceCIDR) },
		NewList:          func() runtime.Object { return new(networkingv1.ServiceCIDRList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(networkingv1.ServiceCIDR) }, func() api.Object { return new(networkingv1beta1.ServiceCIDR) },
				func() runtime.Object { return new(networkingv1beta1.ServiceCIDRList) }),
		},
		Subresources: []api.Subresource{api.Status()},
	}
}
