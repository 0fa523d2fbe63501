package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func endpoints() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Endpoints"),
		Plural:           "endpoints",
		Singular:         "endpoints",
		ShortNames:       []string{"ep"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Endpoints) },
		NewList:          func() runtime.Object { return new(corev1.EndpointsList) },
		CreateOnUpdate:   true,
	}
}
