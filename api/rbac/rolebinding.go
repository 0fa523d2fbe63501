package rbac

import (
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		Default: func(obj api.Object) {
			b := obj.(*rbacv1.RoleBinding)
			defaultBinding(&b.RoleRef, b.Subjects)
		},
		ValidateName: path.ValidatePathSegmentName,
		Validate: func(obj api.Object) field.ErrorList {
			b := obj.(*rbacv1.RoleBinding)
			return validateBinding(b.RoleRef, b.Subjects, true)
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			b := obj.(*rbacv1.RoleBinding)
			errs := validateBinding(b.RoleRef, b.Subjects, true)
			if b.RoleRef != old.(*rbacv1.RoleBinding).RoleRef {
				errs = append(errs, field.Invalid(field.NewPath("roleRef"), b.RoleRef, "cannot change roleRef"))
			}
			return errs
		},
		Columns: bindingColumns(rbacv1.RoleBinding{}),
		Cells: func(obj api.Object, now time.Time) []any {
			b := obj.(*rbacv1.RoleBinding)
			return bindingCells(b, b.RoleRef, b.Subjects, now)
		},
	}
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	kinds := []string{"ClusterRole"}
	if namespaced {
		kinds = []string{"Role", "ClusterRole"}
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	for _, msg := range path.ValidatePathSegmentName(ref.Name, false) {
		errs = append(errs, field.Invalid(at.Child("name"), ref.Name, msg))
	}
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, namespaced, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	group := rbacv1.GroupName
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			for _, msg := range validation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, msg))
			}
		}
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
	default:
		return append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	if s.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
	}
	return errs
}

func bindingColumns(t interface{ SwaggerDoc() map[string]string }) []api.Column {
	return []api.Column{
		api.NameColumn(),
		api.Text("Role", rules.Doc(t, "roleRef")),
		api.AgeColumn(),
		api.Wide("Users", "Users in the binding"),
		api.Wide("Groups", "Groups in the binding"),
		api.Wide("ServiceAccounts", "ServiceAccounts in the binding"),
	}
}

func bindingCells(obj api.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject, now time.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{obj.GetName(), ref.Kind + "/" + ref.Name, api.Age(obj.GetCreationTimestamp(), now),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}
