package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func statefulSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
		Plural:           "statefulsets",
		Singular:         "statefulset",
		ShortNames:       []string{"sts"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.StatefulSet) },
		NewList:          func() runtime.Object { return new(appsv1.StatefulSetList) },
		Subresources:     []api.Subresource{api.ScaleOf(getStatefulSetScale, setStatefulSetScale), api.Status()},
		HasGeneration:    true,
	}
}
