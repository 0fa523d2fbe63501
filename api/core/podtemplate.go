package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func podTemplates() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("PodTemplate"),
		Plural:           "podtemplates",
		Singular:         "podtemplate",
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.PodTemplate) },
		NewList:          func() runtime.Object { return new(corev1.PodTemplateList) },
		HasGeneration:    true,
	}
}
