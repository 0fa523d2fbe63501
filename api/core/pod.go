package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

func pods() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Pod"),
		Plural:           "pods",
		Singular:         "pod",
		ShortNames:       []string{"po"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Pod) },
		NewList:          func() runtime.Object { return new(corev1.PodList) },
		Subresources: []api.Subresource{
			connected("attach", "PodAttachOptions"),
			{Name: "binding", Kind: kind("Binding"), Verbs: []string{"create"}},
			{Name: "ephemeralcontainers", Verbs: []string{"get", "patch", "update"}},
			{Name: "eviction", Kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, Verbs: []string{"create"}},
			connected("exec", "PodExecOptions"),
			{Name: "log", Verbs: []string{"get"}},
			connected("portforward", "PodPortForwardOptions"),
			proxied("PodProxyOptions"),
			api.Status(),
		},
	}
}
