package apps

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
)

// validateSelector checks the selector of a workload: required, valid and not empty.
func validateSelector(s *metav1.LabelSelector, spec *field.Path, kind string) field.ErrorList {
	path := spec.Child("selector")
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, path)
	if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path, s, "empty selector is invalid for "+kind))
	}
	return errs
}

// selectorUnchanged forbids changing the selector of a workload: it would orphan its pods.
func selectorUnchanged(s, old *metav1.LabelSelector) field.ErrorList {
	return validation.ValidateImmutableField(s, old, field.NewPath("spec", "selector"))
}

// validateTemplate checks the pod template of a workload whose pods run for ever.
func validateTemplate(t *corev1.PodTemplateSpec, s *metav1.LabelSelector, spec *field.Path, kind string) field.ErrorList {
	path := spec.Child("template")
	var errs field.ErrorList
	if selector, err := metav1.LabelSelectorAsSelector(s); err != nil {
		errs = append(errs, field.Invalid(spec.Child("selector"), s, ""))
	} else if !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	errs = append(errs, core.ValidatePodTemplate(t, path)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

// templateWarnings are the warnings of a workload whose name becomes the prefix of host names.
func templateWarnings(obj, old api.Object, t, oldTemplate *corev1.PodTemplateSpec) []string {
	var warnings []string
	if old == nil {
		if msgs := utilvalidation.IsDNS1123Label(obj.GetName()); len(msgs) > 0 {
			warnings = append(warnings, fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in "+
				"surprising behavior; a DNS label is recommended: %v", msgs))
		}
	}
	return append(warnings, core.PodTemplateWarnings(field.NewPath("spec", "template"), t, oldTemplate)...)
}
