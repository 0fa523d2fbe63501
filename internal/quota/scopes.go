package quota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const scopeVolumeAttributesClass = corev1.ResourceQuotaScope("VolumeAttributesClass")

// Matches reports whether an object falls under a quota: it uses something that the quota limits and is in all its scopes.
func Matches(q *corev1.ResourceQuota, gr schema.GroupResource, obj runtime.Object) bool {
	if !Counted(gr, q.Spec.Hard) {
		return false
	}
	for _, scope := range q.Spec.Scopes {
		if !inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists}, obj) {
			return false
		}
	}
	if q.Spec.ScopeSelector != nil {
		for _, requirement := range q.Spec.ScopeSelector.MatchExpressions {
			if !inScope(requirement, obj) {
				return false
			}
		}
	}
	return true
}

// inScope: what has no notion of a scope is outside of it.
func inScope(r corev1.ScopedResourceSelectorRequirement, obj runtime.Object) bool {
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && r.ScopeName == scopeVolumeAttributesClass {
		return selects(r, attributesClasses(claim))
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false
	}
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		// A pod without a class is outside of every scope about classes, but for NotIn and DoesNotExist.
		var classes []string
		if pod.Spec.PriorityClassName != "" {
			classes = []string{pod.Spec.PriorityClassName}
		}
		return selects(r, classes)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod)
	}
	return false
}

func selects(r corev1.ScopedResourceSelectorRequirement, values []string) bool {
	in := slices.ContainsFunc(values, func(v string) bool { return slices.Contains(r.Values, v) })
	switch r.Operator {
	case corev1.ScopeSelectorOpIn:
		return in
	case corev1.ScopeSelectorOpNotIn:
		return !in
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(values) == 0
	}
	return len(values) > 0
}

// attributesClasses are all that a claim has, wants or is being changed to.
func attributesClasses(c *corev1.PersistentVolumeClaim) []string {
	var out []string
	add := func(name *string) {
		if name != nil && *name != "" {
			out = append(out, *name)
		}
	}
	add(c.Spec.VolumeAttributesClassName)
	add(c.Status.CurrentVolumeAttributesClassName)
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(&m.TargetVolumeAttributesClassName)
	}
	return out
}

func bestEffort(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	}
	uses := func(r *corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q, ok := list[name]; ok && !q.IsZero() {
					return true
				}
			}
		}
		return false
	}
	if pod.Spec.Resources != nil && uses(pod.Spec.Resources) {
		return false
	}
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			if uses(&containers[i].Resources) {
				return false
			}
		}
	}
	return true
}

func crossesNamespaces(pod *corev1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	if a := affinity.PodAffinity; a != nil {
		terms = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	if a := affinity.PodAntiAffinity; a != nil {
		terms = append(terms, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, w := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			terms = append(terms, w.PodAffinityTerm)
		}
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
