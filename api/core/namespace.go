package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func namespaces() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Namespace"),
		Plural:           "namespaces",
		Singular:         "namespace",
		ShortNames:       []string{"ns"},
		New:              func() api.Object { return new(corev1.Namespace) },
		NewList:          func() runtime.Object { return new(corev1.NamespaceList) },
		Verbs:            withoutDeleteCollection(), ValidateName: dnsLabel,
		Subresources: []api.Subresource{{Name: "finalize", Verbs: []string{"update"}}, api.Status()},
	}
}
