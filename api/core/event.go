package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func events() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Event"),
		Plural:           "events",
		Singular:         "event",
		ShortNames:       []string{"ev"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Event) },
		NewList:          func() runtime.Object { return new(corev1.EventList) },
		CreateOnUpdate:   true,
		ValidateName:     path.ValidatePathSegmentName,
		Versions:         []api.Version{eventsV1()},
	}
}
