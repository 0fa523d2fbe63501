package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func clusterRoles() *api.Resource {
	return &api.Resource{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		Plural:           "clusterroles",
		Singular:         "clusterrole",
		New:              func() api.Object { return new(rbacv1.ClusterRole) },
		NewList:          func() runtime.Object { return new(rbacv1.ClusterRoleList) },
		CreateOnUpdate:   true,
	}
}
