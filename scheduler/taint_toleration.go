package scheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa/client"
)

const taintTolerationName = "TaintToleration"

// taintToleration refuses nodes with taints that the pod does not tolerate, and prefers those with fewer taints of effect
// PreferNoSchedule.
type taintToleration struct{}

func (taintToleration) name() string { return taintTolerationName }

type taintFilter struct {
	tolerations []corev1.Toleration
	rejected    map[corev1.Taint]*status
}

func (taintToleration) preFilter(c *cycle) (filter, *status) {
	return &taintFilter{tolerations: c.pod.pod.Spec.Tolerations}, nil
}

func (f *taintFilter) filter(n *nodeInfo) *status {
	for i := range n.node.Spec.Taints {
		t := &n.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(f.tolerations, t) {
			continue
		}
		key := corev1.Taint{Key: t.Key, Value: t.Value}
		r := f.rejected[key]
		if r == nil {
			if f.rejected == nil {
				f.rejected = map[corev1.Taint]*status{}
			}
			r = reject(taintTolerationName, unresolvable, fmt.Sprintf("node(s) had untolerated taint {%s: %s}", t.Key, t.Value))
			f.rejected[key] = r
		}
		return r
	}
	return nil
}

// tolerated reports whether one of tolerations tolerates t.
func tolerated(tolerations []corev1.Toleration, t *corev1.Taint) bool {
	for i := range tolerations {
		o := &tolerations[i]
		if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
			continue
		}
		switch o.Operator {
		case corev1.TolerationOpExists:
			return true
		case "", corev1.TolerationOpEqual:
			if o.Key != "" && o.Value == t.Value {
				return true
			}
		}
	}
	return false
}

type taintScorer struct{ tolerations []corev1.Toleration }

func (taintToleration) preScore(c *cycle, nodes []*nodeInfo) scorer {
	for _, n := range nodes {
		for i := range n.node.Spec.Taints {
			if n.node.Spec.Taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
				return taintScorer{c.pod.pod.Spec.Tolerations}
			}
		}
	}
	return nil
}

func (s taintScorer) score(n *nodeInfo) int64 {
	var count int64
	for i := range n.node.Spec.Taints {
		t := &n.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(s.tolerations, t) {
			count++
		}
	}
	return count
}

func (taintScorer) normalize(scores []int64) { normalizeTo(scores, true) }

func (taintToleration) hint(e client.Event, pod *corev1.Pod) bool {
	old, node := nodeEvent(e)
	if node == nil || old != nil && equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) {
		return false
	}
	f := taintFilter{tolerations: pod.Spec.Tolerations}
	return f.filter(&nodeInfo{node: node}) == nil
}
