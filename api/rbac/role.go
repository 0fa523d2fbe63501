package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		ValidateName:     path.ValidatePathSegmentName,
		Validate: func(obj api.Object) field.ErrorList {
			return validateRules(obj.(*rbacv1.Role).Rules, true)
		},

		Columns: []api.Column{
			api.NameColumn(),
			{Name: "Created At", Type: "date", Description: rules.Doc(metav1.ObjectMeta{}, "creationTimestamp")},
		},
		Cells: func(obj api.Object, now time.Time) []any {
			return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		},
	}
}
