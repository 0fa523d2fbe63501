package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
		Default: func(obj api.Object) {
			b := obj.(*rbacv1.ClusterRoleBinding)
			defaultBinding(&b.RoleRef, b.Subjects)
		},
		ValidateName: path.ValidatePathSegmentName,
		Validate: func(obj api.Object) field.ErrorList {
			b := obj.(*rbacv1.ClusterRoleBinding)
			return validateBinding(b.RoleRef, b.Subjects, false)
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			b := obj.(*rbacv1.ClusterRoleBinding)
			errs := validateBinding(b.RoleRef, b.Subjects, false)
			if b.RoleRef != old.(*rbacv1.ClusterRoleBinding).RoleRef {
				errs = append(errs, field.Invalid(field.NewPath("roleRef"), b.RoleRef, "cannot change roleRef"))
			}
			return errs
		},
		Columns: bindingColumns(rbacv1.ClusterRoleBinding{}),
		Cells: func(obj api.Object, now time.Time) []any {
			b := obj.(*rbacv1.ClusterRoleBinding)
			return bindingCells(b, b.RoleRef, b.Subjects, now)
		},
	}
}
