package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func roleBindings() *api.Resource {
	return &api.Resource{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		Plural:           "rolebindings",
		Singular:         "rolebinding",
		Namespaced:       true,
		New:              func() api.Object { return new(rbacv1.RoleBinding) },
		NewList:          func() runtime.Object { return new(rbacv1.RoleBindingList) },
		CreateOnUpdate:   true,
	}
}
