package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func limitRanges() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("LimitRange"),
		Plural:           "limitranges",
		Singular:         "limitrange",
		ShortNames:       []string{"limits"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.LimitRange) },
		NewList:          func() runtime.Object { return new(corev1.LimitRangeList) },
		CreateOnUpdate:   true,
	}
}
