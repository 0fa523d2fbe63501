package networking

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		Default:          defaultNetworkPolicy,
		Validate: func(obj api.Object) field.ErrorList {
			return validateNetworkPolicy(&obj.(*networkingv1.NetworkPolicy).Spec, field.NewPath("spec"))
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Pod-Selector", rules.Doc(networkingv1.NetworkPolicySpec{}, "podSelector")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			policy := obj.(*networkingv1.NetworkPolicy)
			return []any{policy.Name, api.Selector(&policy.Spec.PodSelector), api.Age(policy.CreationTimestamp, now)}
		},
	}
}

func defaultNetworkPolicy(obj api.Object) {
	spec := &obj.(*networkingv1.NetworkPolicy).Spec
	for _, rule := range spec.Ingress {
		defaultPorts(rule.Ports)
	}
	for _, rule := range spec.Egress {
		defaultPorts(rule.Ports)
	}
	if len(spec.PolicyTypes) == 0 {
		// What a policy meant before there were types: it isolates for ingress, and for egress if it has such rules.
		spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(spec.Egress) > 0 {
			spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

func defaultPorts(ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		rules.SetDefault(&ports[i].Protocol, corev1.ProtocolTCP)
	}
}
