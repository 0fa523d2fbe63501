package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func resourceQuotas() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ResourceQuota"),
		Plural:           "resourcequotas",
		Singular:         "resourcequota",
		ShortNames:       []string{"quota"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ResourceQuota) },
		NewList:          func() runtime.Object { return new(corev1.ResourceQuotaList) },
		Subresources:     []api.Subresource{api.Status()},
	}
}
