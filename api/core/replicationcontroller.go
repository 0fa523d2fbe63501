package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func replicationControllers() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ReplicationController"),
		Plural:           "replicationcontrollers",
		Singular:         "replicationcontroller",
		ShortNames:       []string{"rc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ReplicationController) },
		NewList:          func() runtime.Object { return new(corev1.ReplicationControllerList) },
		HasGeneration:    true,
		Subresources:     []api.Subresource{api.ScaleOf(rcScale, setRCScale), api.Status()},
	}
}

func rcScale(obj api.Object) (spec, status int32, selector string) {
	rc := obj.(*corev1.ReplicationController)
	if rc.Spec.Replicas != nil {
		spec = *rc.Spec.Replicas
	}
	return spec, rc.Status.Replicas, labels.SelectorFromSet(rc.Spec.Selector).String()
}

func setRCScale(obj api.Object, replicas int32) {
	obj.(*corev1.ReplicationController).Spec.Replicas = &replicas
}
