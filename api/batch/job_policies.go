package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxPolicyRules      = 20
	maxExitCodes        = 255
	maxPodConditions    = 20
	maxSucceededIndexes = 64 * 1024
)

// enumerated checks a required value that must be one of a few.
func enumerated[T ~string](path *field.Path, value T, values ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", values))}
	case !slices.Contains(values, value):
		return field.ErrorList{field.NotSupported(path, value, values)}
	}
	return nil
}

func validateFailurePolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	path = path.Child("rules")
	if n := len(spec.PodFailurePolicy.Rules); n > maxPolicyRules {
		errs = append(errs, field.TooMany(path, n, maxPolicyRules))
	}
	var containers []string
	for _, c := range spec.Template.Spec.InitContainers {
		containers = append(containers, c.Name)
	}
	for _, c := range spec.Template.Spec.Containers {
		containers = append(containers, c.Name)
	}
	for i := range spec.PodFailurePolicy.Rules {
		errs = append(errs, validateFailureRule(spec, &spec.PodFailurePolicy.Rules[i], path.Index(i), containers)...)
	}
	return errs
}

func validateFailureRule(spec *batchv1.JobSpec, rule *batchv1.PodFailurePolicyRule, path *field.Path, containers []string) field.ErrorList {
	errs := enumerated(path.Child("action"), rule.Action, batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
		batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore)
	if rule.Action == batchv1.PodFailurePolicyActionFailIndex && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(path.Child("action"), rule.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if rule.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(rule.OnExitCodes, path.Child("onExitCodes"), containers)...)
	}
	if len(rule.OnPodConditions) > 0 {
		errs = append(errs, validatePodConditions(rule.OnPodConditions, path.Child("onPodConditions"))...)
	}
	switch hasCodes, hasConditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
	case hasCodes && hasConditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case !hasCodes && !hasConditions:
		errs = append(errs, field.Invalid(path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, path *field.Path, containers []string) field.ErrorList {
	errs := enumerated(path.Child("operator"), r.Operator, batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn)
	if r.ContainerName != nil && !slices.Contains(containers, *r.ContainerName) {
		errs = append(errs, field.Invalid(path.Child("containerName"), *r.ContainerName, "must be one of the container or initContainer names in the pod template"))
	}
	path = path.Child("values")
	switch n := len(r.Values); {
	case n == 0:
		errs = append(errs, field.Invalid(path, r.Values, "at least one value is required"))
	case n > maxExitCodes:
		errs = append(errs, field.TooMany(path, n, maxExitCodes))
	}
	ordered := true
	seen := map[int32]bool{}
	for i, code := range r.Values {
		if r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			errs = append(errs, field.Invalid(path.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen[code] {
			errs = append(errs, field.Duplicate(path.Index(i), code))
		}
		seen[code] = true
		if i > 0 && r.Values[i-1] > code {
			ordered = false
		}
	}
	if !ordered {
		errs = append(errs, field.Invalid(path, r.Values, "must be ordered"))
	}
	return errs
}

func validatePodConditions(conditions []batchv1.PodFailurePolicyOnPodConditionsPattern, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range conditions {
		for _, msg := range utilvalidation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(path.Index(i).Child("type"), string(c.Type), msg))
		}
		errs = append(errs, enumerated(path.Index(i).Child("status"), c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)...)
	}
	if n := len(conditions); n > maxPodConditions {
		errs = append(errs, field.TooMany(path, n, maxPodConditions))
	}
	return errs
}

func validateSuccessPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	path = path.Child("rules")
	list := spec.SuccessPolicy.Rules
	var errs field.ErrorList
	switch n := len(list); {
	case n == 0:
		errs = append(errs, field.Required(path, "at least one rules must be specified when the successPolicy is specified"))
	case n > maxPolicyRules:
		errs = append(errs, field.TooMany(path, n, maxPolicyRules))
	}
	for i := range list {
		errs = append(errs, validateSuccessRule(spec, &list[i], path.Index(i))...)
	}
	return errs
}

func validateSuccessRule(spec *batchv1.JobSpec, rule *batchv1.SuccessPolicyRule, path *field.Path) field.ErrorList {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		return field.ErrorList{field.Required(path, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	var indexes int32
	if list := rule.SucceededIndexes; list != nil {
		path := path.Child("succeededIndexes")
		if len(*list) > maxSucceededIndexes {
			errs = append(errs, field.TooLong(path, *list, maxSucceededIndexes))
		}
		var err error
		if spec.Completions != nil {
			if indexes, err = countIndexes(*list, *spec.Completions); err != nil {
				errs = append(errs, field.Invalid(path, *list, fmt.Sprintf("error parsing succeededIndexes: %s", err)))
			}
		}
	}
	if count := rule.SucceededCount; count != nil {
		path := path.Child("succeededCount")
		errs = append(errs, validation.ValidateNonnegativeField(int64(*count), path)...)
		if spec.Completions != nil && *count > *spec.Completions {
			errs = append(errs, field.Invalid(path, *count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *spec.Completions)))
		}
		if rule.SucceededIndexes != nil && *count > indexes {
			errs = append(errs, field.Invalid(path, *count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", indexes)))
		}
	}
	return errs
}
