package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func componentStatuses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ComponentStatus"),
		Plural:           "componentstatuses",
		Singular:         "componentstatus",
		ShortNames:       []string{"cs"},
		New:              func() api.Object { return new(corev1.ComponentStatus) },
		NewList:          func() runtime.Object { return new(corev1.ComponentStatusList) },
		Verbs:            []string{"get", "list"}, Virtual: true,
	}
}
