package autoscaling

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxPeriodSeconds        = 1800
	maxStabilizationSeconds = 3600
)

func validateAutoscaler(spec *autoscalingv2.HorizontalPodAutoscalerSpec) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	// Scaling to zero is an alpha feature that is off.
	if n := spec.MinReplicas; n != nil && *n < 1 {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *n, "must be greater than or equal to 1"))
	}
	if spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than 0"))
	}
	if n := spec.MinReplicas; n != nil && spec.MaxReplicas < *n {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	errs = append(errs, validateReference(spec.ScaleTargetRef, at.Child("scaleTargetRef"))...)
	for i := range spec.Metrics {
		errs = append(errs, validateMetric(&spec.Metrics[i], at.Child("metrics").Index(i))...)
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateScaling(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateScaling(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateReference(ref autoscalingv2.CrossVersionObjectReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct{ name, value string }{{"kind", ref.Kind}, {"name", ref.Name}} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), ""))
			continue
		}
		for _, msg := range path.IsValidPathSegmentName(f.value) {
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, msg))
		}
	}
	return errs
}

func validateScaling(r *autoscalingv2.HPAScalingRules, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if n := r.StabilizationWindowSeconds; n != nil {
		if *n < 0 {
			errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), *n, "must be greater than or equal to zero"))
		}
		if *n > maxStabilizationSeconds {
			errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), *n, fmt.Sprintf("must be less than or equal to %v", maxStabilizationSeconds)))
		}
	}
	selects := []autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect}
	if r.SelectPolicy != nil && !slices.Contains(selects, *r.SelectPolicy) {
		errs = append(errs, field.NotSupported(at.Child("selectPolicy"), *r.SelectPolicy, selects))
	}
	policies := at.Child("policies")
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	types := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}
	for i, p := range r.Policies {
		at := policies.Index(i)
		if !slices.Contains(types, p.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), p.Type, types))
		}
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		}
		if p.PeriodSeconds > maxPeriodSeconds {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %v", maxPeriodSeconds)))
		}
	}
	return errs
}

func validateMetric(m *autoscalingv2.MetricSpec, at *field.Path) field.ErrorList {
	if m.Type == "" {
		return field.ErrorList{field.Required(at.Child("type"), "must specify a metric source type")}
	}
	types := []autoscalingv2.MetricSourceType{autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
		autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType}
	if !slices.Contains(types, m.Type) {
		return field.ErrorList{field.NotSupported(at.Child("type"), m.Type, types)}
	}
	var errs field.ErrorList
	source := func(kind autoscalingv2.MetricSourceType, name string, set bool, validate func(at *field.Path) field.ErrorList) {
		switch {
		case set && kind != m.Type:
			errs = append(errs, field.Forbidden(at.Child(name), "must populate the given metric source only"))
		case set:
			errs = append(errs, validate(at.Child(name))...)
		case kind == m.Type:
			errs = append(errs, field.Required(at.Child(name), "must populate information for the given metric source"))
		}
	}
	source(autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList {
		errs := validateReference(m.Object.DescribedObject, at.Child("describedObject"))
		errs = append(errs, validateIdentifier(m.Object.Metric, at.Child("metric"))...)
		errs = append(errs, validateTarget(m.Object.Target, at.Child("target"))...)
		if m.Object.Target.Value == nil && m.Object.Target.AverageValue == nil {
			errs = append(errs, field.Required(at.Child("target", "averageValue"), "must set either a target value or averageValue"))
		}
		return errs
	})
	source(autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList {
		errs := validateIdentifier(m.External.Metric, at.Child("metric"))
		errs = append(errs, validateTarget(m.External.Target, at.Child("target"))...)
		switch t := &m.External.Target; {
		case t.Value == nil && t.AverageValue == nil:
			errs = append(errs, field.Required(at.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
		case t.Value != nil && t.AverageValue != nil:
			errs = append(errs, field.Forbidden(at.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
		}
		return errs
	})
	source(autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList {
		errs := validateIdentifier(m.Pods.Metric, at.Child("metric"))
		errs = append(errs, validateTarget(m.Pods.Target, at.Child("target"))...)
		if v := m.Pods.Target.AverageValue; v == nil || v.Sign() != 1 {
			errs = append(errs, field.Required(at.Child("target", "averageValue"), "must specify a positive target averageValue"))
		}
		return errs
	})
	source(autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
		return validateResource(string(m.Resource.Name), m.Resource.Target, at)
	})
	source(autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) field.ErrorList {
		errs := validateResource(string(m.ContainerResource.Name), m.ContainerResource.Target, at)
		if m.ContainerResource.Container == "" {
			errs = append(errs, field.Required(at.Child("container"), "must specify a container"))
		} else {
			for _, msg := range path.IsValidPathSegmentName(m.ContainerResource.Container) {
				errs = append(errs, field.Invalid(at.Child("container"), m.ContainerResource.Container, msg))
			}
		}
		return errs
	})
	return errs
}

func validateResource(name string, target autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, validateTarget(target, at.Child("target"))...)
	switch {
	case target.AverageUtilization == nil && target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target", "averageUtilization"), "must set either a target raw value or a target utilization"))
	case target.AverageUtilization != nil && target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target", "averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateIdentifier(id autoscalingv2.MetricIdentifier, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if id.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a metric name"))
	} else {
		for _, msg := range path.IsValidPathSegmentName(id.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), id.Name, msg))
		}
	}
	if id.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(id.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	return errs
}

func validateTarget(t autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	case "":
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be positive"))
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs = append(errs, field.Invalid(at.Child("averageValue"), t.AverageValue, "must be positive"))
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}
