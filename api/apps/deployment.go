package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func deployments() *api.Resource {
	return &api.Resource{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Plural:           "deployments",
		Singular:         "deployment",
		ShortNames:       []string{"deploy"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(appsv1.Deployment) },
		NewList:          func() runtime.Object { return new(appsv1.DeploymentList) },
		Subresources:     []api.Subresource{api.ScaleOf(getDeploymentScale, setDeploymentScale), api.Status()},
		HasGeneration:    true,
	}
}
