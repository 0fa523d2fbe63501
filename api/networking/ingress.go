package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func ingresses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		Plural:           "ingresses",
		Singular:         "ingress",
		ShortNames:       []string{"ing"},
		Namespaced:       true,
		New:              func() api.Object { return new(networkingv1.Ingress) },
		NewList:          func() runtime.Object { return new(networkingv1.IngressList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
	}
}
