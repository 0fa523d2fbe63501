package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func secrets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Secret"),
		Plural:           "secrets",
		Singular:         "secret",
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Secret) },
		NewList:          func() runtime.Object { return new(corev1.SecretList) },
	}
}
