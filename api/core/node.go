package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func nodes() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Node"),
		Plural:           "nodes",
		Singular:         "node",
		ShortNames:       []string{"no"},
		New:              func() api.Object { return new(corev1.Node) },
		NewList:          func() runtime.Object { return new(corev1.NodeList) },
		Subresources:     []api.Subresource{proxied("NodeProxyOptions"), api.Status()},
	}
}
