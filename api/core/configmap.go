package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func configMaps() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ConfigMap"),
		Plural:           "configmaps",
		Singular:         "configmap",
		ShortNames:       []string{"cm"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ConfigMap) },
		NewList:          func() runtime.Object { return new(corev1.ConfigMapList) },
	}
}
