package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func persistentVolumeClaims() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("PersistentVolumeClaim"),
		Plural:           "persistentvolumeclaims",
		Singular:         "persistentvolumeclaim",
		ShortNames:       []string{"pvc"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.PersistentVolumeClaim) },
		NewList:          func() runtime.Object { return new(corev1.PersistentVolumeClaimList) },
		Subresources:     []api.Subresource{api.Status()},
	}
}
