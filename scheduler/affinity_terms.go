package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// term is a pod (anti-)affinity term, ready to be matched. The API has merged matchLabelKeys and mismatchLabelKeys into
// the selector when the pod was created.
type term struct {
	key        string
	selector   labels.Selector
	namespaces sets.Set[string]
	// namespaceSelector selects further namespaces by their labels; nil selects none.
	namespaceSelector labels.Selector
	weight            int64
}

func newTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm, weight int32) term {
	out := term{key: t.TopologyKey, selector: labels.Nothing(), namespaces: sets.New(t.Namespaces...), weight: int64(weight)}
	if selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector); err == nil {
		out.selector = selector
	}
	if t.NamespaceSelector != nil {
		if selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
			out.namespaceSelector = selector
		}
	} else if len(t.Namespaces) == 0 {
		out.namespaces.Insert(pod.Namespace)
	}
	return out
}

// matches reports whether the term means pod.
func (t *term) matches(s *state, pod *corev1.Pod) bool {
	return (t.namespaces.Has(pod.Namespace) || t.namespaceSelector != nil && t.namespaceSelector.Matches(s.namespaces[pod.Namespace])) &&
		t.selector.Matches(labels.Set(pod.Labels))
}

// affinityTerms of a pod.
type affinityTerms struct {
	near, away             []term // required
	preferNear, preferAway []term
}

func newAffinityTerms(pod *corev1.Pod) *affinityTerms {
	a := pod.Spec.Affinity
	if a == nil || a.PodAffinity == nil && a.PodAntiAffinity == nil {
		return nil
	}
	t := &affinityTerms{}
	required := func(list []corev1.PodAffinityTerm) (out []term) {
		for i := range list {
			out = append(out, newTerm(pod, &list[i], 0))
		}
		return out
	}
	preferred := func(list []corev1.WeightedPodAffinityTerm) (out []term) {
		for i := range list {
			out = append(out, newTerm(pod, &list[i].PodAffinityTerm, list[i].Weight))
		}
		return out
	}
	if p := a.PodAffinity; p != nil {
		t.near = required(p.RequiredDuringSchedulingIgnoredDuringExecution)
		t.preferNear = preferred(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		t.away = required(p.RequiredDuringSchedulingIgnoredDuringExecution)
		t.preferAway = preferred(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return t
}
