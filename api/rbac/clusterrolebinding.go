package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func clusterRoleBindings() *api.Resource {
	return &api.Resource{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		Plural:           "clusterrolebindings",
		Singular:         "clusterrolebinding",
		New:              func() api.Object { return new(rbacv1.ClusterRoleBinding) },
		NewList:          func() runtime.Object { return new(rbacv1.ClusterRoleBindingList) },
		CreateOnUpdate:   true,
	}
}
