package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func ingressClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IngressClass"),
		Plural:           "ingressclasses",
		Singular:         "ingressclass",
		New:              func() api.Object { return new(networkingv1.IngressClass) },
		NewList:          func() runtime.Object { return new(networkingv1.IngressClassList) },
		HasGeneration:    true,
	}
}
