package autoscaling

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func horizontalPodAutoscalers() *api.Resource {
	return &api.Resource{
		GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
		Plural:           "horizontalpodautoscalers",
		Singular:         "horizontalpodautoscaler",
		ShortNames:       []string{"hpa"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
		NewList:          func() runtime.Object { return new(autoscalingv2.HorizontalPodAutoscalerList) },
		Versions: []api.Version{
			{
				Name:        "v1",
				New:         func() api.Object { return new(autoscalingv1.HorizontalPodAutoscaler) },
				NewList:     func() runtime.Object { return new(autoscalingv1.HorizontalPodAutoscalerList) },
				ToStorage:   v1ToStorage,
				FromStorage: v1FromStorage,
			},
		},
		Subresources: []api.Subresource{api.Status()},
		Default:      defaultAutoscaler,
		Validate: func(obj api.Object) field.ErrorList {
			return validateAutoscaler(&obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec)
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			s, at := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Status, field.NewPath("status")
			errs := rules.NonNegative(at.Child("currentReplicas"), &s.CurrentReplicas)
			return append(errs, rules.NonNegative(at.Child("desiredReplicas"), &s.DesiredReplicas)...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Reference", rules.Doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "scaleTargetRef")),
			api.Text("Targets", rules.Doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "metrics")),
			api.Text("MinPods", rules.Doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "minReplicas")),
			api.Text("MaxPods", rules.Doc(autoscalingv2.HorizontalPodAutoscalerSpec{}, "maxReplicas")),
			api.Text("Replicas", rules.Doc(autoscalingv2.HorizontalPodAutoscalerStatus{}, "currentReplicas")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			hpa := obj.(*autoscalingv2.HorizontalPodAutoscaler)
			atLeast := "<unset>"
			if hpa.Spec.MinReplicas != nil {
				atLeast = strconv.Itoa(int(*hpa.Spec.MinReplicas))
			}
			return []any{hpa.Name, hpa.Spec.ScaleTargetRef.Kind + "/" + hpa.Spec.ScaleTargetRef.Name,
				targetsCell(hpa.Spec.Metrics, hpa.Status.CurrentMetrics), atLeast, int64(hpa.Spec.MaxReplicas),
				int64(hpa.Status.CurrentReplicas), api.Age(hpa.CreationTimestamp, now)}
		},
	}
}

func defaultAutoscaler(obj api.Object) {
	spec := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec
	rules.SetDefault(&spec.MinReplicas, 1)
	if len(spec.Metrics) == 0 {
		utilization := int32(80)
		spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &utilization},
			},
		}}
	}
	if spec.Behavior == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}
	defaultScaling(&spec.Behavior.ScaleUp, pods, percent)
	rules.SetDefault(&spec.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScaling(&spec.Behavior.ScaleDown, percent)
}

func defaultScaling(r **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	if *r == nil {
		*r = &autoscalingv2.HPAScalingRules{}
	}
	rules.SetDefault(&(*r).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*r).Policies == nil {
		(*r).Policies = policies
	}
}

// targetsCell shows the first two metrics as "current/target" and counts the others.
func targetsCell(specs []autoscalingv2.MetricSpec, current []autoscalingv2.MetricStatus) string {
	const limit = 2
	if len(specs) == 0 {
		return "<none>"
	}
	var list []string
	for i := range specs[:min(limit, len(specs))] {
		var status autoscalingv2.MetricStatus
		if i < len(current) {
			status = current[i]
		}
		list = append(list, targetCell(&specs[i], &status))
	}
	text := strings.Join(list, ", ")
	if n := len(specs) - limit; n > 0 {
		text += fmt.Sprintf(" + %d more...", n)
	}
	return text
}

func targetCell(spec *autoscalingv2.MetricSpec, status *autoscalingv2.MetricStatus) string {
	var target autoscalingv2.MetricTarget
	var now *autoscalingv2.MetricValueStatus
	var prefix string
	switch {
	case spec.Resource != nil:
		prefix, target = string(spec.Resource.Name)+": ", spec.Resource.Target
		if status.Resource != nil {
			now = &status.Resource.Current
		}
	case spec.ContainerResource != nil:
		prefix, target = string(spec.ContainerResource.Name)+": ", spec.ContainerResource.Target
		if status.ContainerResource != nil {
			now = &status.ContainerResource.Current
		}
	case spec.Pods != nil:
		target = spec.Pods.Target
		if status.Pods != nil {
			now = &status.Pods.Current
		}
		// An average over pods is all that this source has, so it goes without saying.
		return pair(valueOf(now, true, false), target.AverageValue)
	case spec.Object != nil:
		target = spec.Object.Target
		if status.Object != nil {
			now = &status.Object.Current
		}
	case spec.External != nil:
		target = spec.External.Target
		if status.External != nil {
			now = &status.External.Current
		}
	default:
		return "<unknown type>"
	}
	switch {
	case target.AverageValue != nil && prefix == "":
		return pair(valueOf(now, true, false), target.AverageValue) + " (avg)"
	case target.AverageValue != nil:
		return prefix + pair(valueOf(now, true, false), target.AverageValue)
	case prefix != "":
		wanted := "<auto>"
		if target.AverageUtilization != nil {
			wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
		}
		return prefix + valueOf(now, false, true) + "/" + wanted
	}
	return pair(valueOf(now, false, false), target.Value)
}

func valueOf(v *autoscalingv2.MetricValueStatus, average, utilization bool) string {
	switch {
	case v == nil:
	case utilization && v.AverageUtilization != nil:
		return fmt.Sprintf("%d%%", *v.AverageUtilization)
	case average && v.AverageValue != nil:
		return v.AverageValue.String()
	case !average && !utilization && v.Value != nil:
		return v.Value.String()
	}
	return "<unknown>"
}

func pair(current string, target *resource.Quantity) string {
	if target == nil {
		return current + "/<unknown>"
	}
	return current + "/" + target.String()
}
