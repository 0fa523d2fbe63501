package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
)

// Version v1 has a field for the processor's utilization alone. Everything else travels in these annotations.
const (
	annotationMetrics        = "autoscaling.alpha.kubernetes.io/metrics"
	annotationCurrentMetrics = "autoscaling.alpha.kubernetes.io/current-metrics"
	annotationConditions     = "autoscaling.alpha.kubernetes.io/conditions"
	annotationBehavior       = "autoscaling.alpha.kubernetes.io/behavior"
)

func v1ToStorage(obj api.Object) (api.Object, error) {
	in := obj.(*autoscalingv1.HorizontalPodAutoscaler)
	out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
		MinReplicas:    in.Spec.MinReplicas,
		MaxReplicas:    in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		LastScaleTime:      in.Status.LastScaleTime,
		CurrentReplicas:    in.Status.CurrentReplicas,
		DesiredReplicas:    in.Status.DesiredReplicas,
	}
	if n := in.Spec.TargetCPUUtilizationPercentage; n != nil {
		out.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: n},
			},
		}}
	}
	if n := in.Status.CurrentCPUUtilizationPercentage; n != nil {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricStatus{
				Name:    corev1.ResourceCPU,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: n},
			},
		}}
	}
	// An annotation that cannot be read was not written by this translation, and is dropped like upstream's.
	var metrics []autoscalingv1.MetricSpec
	if unpack(in, annotationMetrics, &metrics) {
		for i := range metrics {
			out.Spec.Metrics = append(out.Spec.Metrics, metricFromV1(&metrics[i]))
		}
	}
	var current []autoscalingv1.MetricStatus
	if unpack(in, annotationCurrentMetrics, &current) {
		// The annotation repeats what the field says.
		out.Status.CurrentMetrics = nil
		for i := range current {
			out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, statusFromV1(&current[i]))
		}
	}
	var behavior autoscalingv2.HorizontalPodAutoscalerBehavior
	if unpack(in, annotationBehavior, &behavior) {
		out.Spec.Behavior = &behavior
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if unpack(in, annotationConditions, &conditions) {
		for _, c := range conditions {
			out.Status.Conditions = append(out.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
				Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
				LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
			})
		}
	}
	out.Annotations = without(in.Annotations)
	return out, nil
}

func v1FromStorage(obj api.Object) (api.Object, error) {
	in := obj.(*autoscalingv2.HorizontalPodAutoscaler)
	out := &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: in.ObjectMeta}
	out.Annotations = without(in.Annotations)
	out.Spec = autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
		MinReplicas:    in.Spec.MinReplicas,
		MaxReplicas:    in.Spec.MaxReplicas,
	}
	out.Status = autoscalingv1.HorizontalPodAutoscalerStatus{
		ObservedGeneration: in.Status.ObservedGeneration,
		LastScaleTime:      in.Status.LastScaleTime,
		CurrentReplicas:    in.Status.CurrentReplicas,
		DesiredReplicas:    in.Status.DesiredReplicas,
	}
	var metrics []autoscalingv1.MetricSpec
	for i := range in.Spec.Metrics {
		m := &in.Spec.Metrics[i]
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Target.AverageUtilization != nil && out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = r.Target.AverageUtilization
			continue
		}
		metrics = append(metrics, metricToV1(m))
	}
	var current []autoscalingv1.MetricStatus
	for i := range in.Status.CurrentMetrics {
		m := &in.Status.CurrentMetrics[i]
		if r := m.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil && out.Status.CurrentCPUUtilizationPercentage == nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
		current = append(current, statusToV1(m))
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range in.Status.Conditions {
		conditions = append(conditions, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	// The utilization in its field says nothing of an average value beside it, so that metric is repeated in full.
	if len(current) == 1 && out.Status.CurrentCPUUtilizationPercentage != nil && in.Status.CurrentMetrics[0].Resource.Current.AverageValue == nil {
		current = nil
	}
	for _, part := range []struct {
		name  string
		empty bool
		value any
	}{
		{annotationMetrics, len(metrics) == 0, metrics},
		{annotationCurrentMetrics, len(current) == 0, current},
		{annotationConditions, len(conditions) == 0, conditions},
		{annotationBehavior, in.Spec.Behavior == nil, in.Spec.Behavior},
	} {
		if part.empty {
			continue
		}
		data, err := json.Marshal(part.value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", part.name, err)
		}
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, part.name, string(data))
	}
	return out, nil
}

func unpack(hpa *autoscalingv1.HorizontalPodAutoscaler, name string, into any) bool {
	text, ok := hpa.Annotations[name]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

// without returns a copy of annotations that lacks the ones of this translation.
func without(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(name, _ string) bool {
		return name == annotationMetrics || name == annotationCurrentMetrics || name == annotationConditions || name == annotationBehavior
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
