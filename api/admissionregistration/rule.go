package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateRule checks a rule of a webhook or policy; mutating policies have no use for deletions.
func validateRule(r *admissionregistrationv1.RuleWithOperations, at *field.Path, deletions bool) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name, what string
		values     []string
	}{{"apiGroups", "api groups", r.APIGroups}, {"apiVersions", "api versions", r.APIVersions}} {
		if len(f.values) == 0 {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		}
		if len(f.values) > 1 && slices.Contains(f.values, "*") {
			errs = append(errs, field.Invalid(at.Child(f.name), f.values, "if '*' is present, must not specify other "+strings.Replace(f.what, "api", "API", 1)))
		}
	}
	for i, version := range r.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(at.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, at.Child("resources"))...)
	errs = append(errs, oneOf(at.Child("scope"), r.Scope, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)

	at = at.Child("operations")
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create}
	if deletions {
		operations = append(operations, admissionregistrationv1.Delete)
	}
	operations = append(operations, admissionregistrationv1.Update)
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(at, r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, operation := range r.Operations {
		if !slices.Contains(operations, operation) {
			errs = append(errs, field.NotSupported(at.Index(i), operation, operations))
		}
	}
	return errs
}

// validateResources checks names like "pods", "pods/status", "*", "*/*", "pods/*" and "*/status" for overlaps.
func validateResources(resources []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(resources) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	whole := map[string]bool{}
	each := map[string]bool{}
	for i, name := range resources {
		if name == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		if name == "*/*" && len(resources) > 1 {
			errs = append(errs, field.Invalid(at, resources, "if '*/*' is present, must not specify other resources"))
			return errs
		}
		resource, sub, isSub := strings.Cut(name, "/")
		if !isSub {
			if name != "*" && slices.Contains(resources, "*") {
				errs = append(errs, field.Invalid(at, resources, "if '*' is present, must not specify other resources without subresources"))
				return errs
			}
			continue
		}
		switch {
		case whole[resource]:
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name)))
		case each[sub]:
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name)))
		}
		if sub == "*" {
			whole[resource] = true
		}
		if resource == "*" {
			each[sub] = true
		}
	}
	return errs
}
