package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func replicaSets() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Plural:           "replicasets",
		Singular:         "replicaset",
		ShortNames:       []string{"rs"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.ReplicaSet) },
		NewList:          func() runtime.Object { return new(appsv1.ReplicaSetList) },
		Subresources:     []api.Subresource{api.ScaleOf(getReplicaSetScale, setReplicaSetScale), api.Status()},
		HasGeneration:    true,
	}
}
