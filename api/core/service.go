package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func services() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Service"),
		Plural:           "services",
		Singular:         "service",
		ShortNames:       []string{"svc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Service) },
		NewList:          func() runtime.Object { return new(corev1.ServiceList) },
		CreateOnUpdate:   true, ValidateName: validation.NameIsDNS1035Label,
		Subresources: []api.Subresource{proxied("ServiceProxyOptions"), api.Status()},
	}
}
