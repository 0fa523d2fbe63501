package rbac

import (
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func clusterRoles() *api.Resource {
	return &api.Resource{
		GroupVersionKind: rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		Plural:           "clusterroles",
		Singular:         "clusterrole",
		New:              func() api.Object { return new(rbacv1.ClusterRole) },
		NewList:          func() runtime.Object { return new(rbacv1.ClusterRoleList) },
		CreateOnUpdate:   true,
		ValidateName:     path.ValidatePathSegmentName,
		Validate:         func(obj api.Object) field.ErrorList { return validateClusterRole(obj.(*rbacv1.ClusterRole)) },

		Columns: []api.Column{
			api.NameColumn(),
			{Name: "Created At", Type: "date", Description: rules.Doc(metav1.ObjectMeta{}, "creationTimestamp")},
		},
		Cells: func(obj api.Object, now time.Time) []any {
			return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		},
	}
}

func validateClusterRole(role *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(role.Rules, false)
	if role.AggregationRule == nil {
		return errs
	}
	selectors := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(role.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		s := &role.AggregationRule.ClusterRoleSelectors[i]
		errs = append(errs, metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, selectors.Index(i))...)
	}
	return errs
}

func validateRules(list []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range list {
		at := field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(rule.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), rule.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(rule.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}
