package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func roles() *api.Resource {
	return &api.Resource{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("Role"),
		Plural:           "roles",
		Singular:         "role",
		Namespaced:       true,
		New:              func() api.Object { return new(rbacv1.Role) },
		NewList:          func() runtime.Object { return new(rbacv1.RoleList) },
		CreateOnUpdate:   true,
	}
}
