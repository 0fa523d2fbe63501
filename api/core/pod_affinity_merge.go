package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// merged says whether the selector's only requirement of key is one that mergeAffinity adds for matchLabelKeys.
func merged(t corev1.PodAffinityTerm, key string) bool {
	for _, e := range t.LabelSelector.MatchExpressions {
		if e.Key == key {
			return e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1
		}
	}
	return false
}

// mergeAffinity adds what matchLabelKeys and mismatchLabelKeys ask for to the selectors of a new pod's affinity terms,
// with the values of the pod's own labels. Keys that the pod lacks are passed over.
func mergeAffinity(pod *corev1.Pod) {
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	if pa := a.PodAffinity; pa != nil {
		mergeTerms(pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
	if pa := a.PodAntiAffinity; pa != nil {
		mergeTerms(pa.RequiredDuringSchedulingIgnoredDuringExecution, pa.PreferredDuringSchedulingIgnoredDuringExecution, pod.Labels)
	}
}

func mergeTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, labels map[string]string) {
	for i := range required {
		mergeTerm(&required[i], labels)
	}
	for i := range preferred {
		mergeTerm(&preferred[i].PodAffinityTerm, labels)
	}
}

func mergeTerm(t *corev1.PodAffinityTerm, labels map[string]string) {
	if t.LabelSelector == nil {
		return
	}
	for _, f := range []struct {
		keys     []string
		operator metav1.LabelSelectorOperator
	}{{t.MatchLabelKeys, metav1.LabelSelectorOpIn}, {t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn}} {
		for _, key := range f.keys {
			if value, ok := labels[key]; ok {
				t.LabelSelector.MatchExpressions = append(t.LabelSelector.MatchExpressions,
					metav1.LabelSelectorRequirement{Key: key, Operator: f.operator, Values: []string{value}})
			}
		}
	}
}
