package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func controllerRevisions() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"),
		Plural:           "controllerrevisions",
		Singular:         "controllerrevision",
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.ControllerRevision) },
		NewList:          func() runtime.Object { return new(appsv1.ControllerRevisionList) },
	}
}
