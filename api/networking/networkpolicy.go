package networking

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func networkPolicies() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
		Plural:           "networkpolicies",
		Singular:         "networkpolicy",
		ShortNames:       []string{"netpol"},
		Namespaced:       true,
		New:              func() api.Object { return new(networkingv1.NetworkPolicy) },
		NewList:          func() runtime.Object { return new(networkingv1.NetworkPolicyList) },
		HasGeneration:    true,
	}
}
