package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func daemonSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		Plural:           "daemonsets",
		Singular:         "daemonset",
		ShortNames:       []string{"ds"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.DaemonSet) },
		NewList:          func() runtime.Object { return new(appsv1.DaemonSetList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
	}
}
