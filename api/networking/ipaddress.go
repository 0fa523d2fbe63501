package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func ipAddresses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IPAddress"),
		Plural:           "ipaddresses",
		Singular:         "ipaddress",
		ShortNames:       []string{"ip"},
		New:              func() api.Object { return new(networkingv1.IPAddress) },
		NewList:          func() runtime.Object { return new(networkingv1.IPAddressList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(networkingv1.IPAddress) }, func() api.Object { return new(networkingv1beta1.IPAddress) },
				func() runtime.Object { return new(networkingv1beta1.IPAddressList) }),
		},
	}
}
