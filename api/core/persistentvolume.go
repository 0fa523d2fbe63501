package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func persistentVolumes() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("PersistentVolume"),
		Plural:           "persistentvolumes",
		Singular:         "persistentvolume",
		ShortNames:       []string{"pv"},
		New:              func() api.Object { return new(corev1.PersistentVolume) },
		NewList:          func() runtime.Object { return new(corev1.PersistentVolumeList) },
		Subresources:     []api.Subresource{api.Status()},
	}
}
