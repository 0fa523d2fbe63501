package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// TaintNodesByCondition keeps pods from a new node until it has been seen to be ready.
type TaintNodesByCondition struct{ Pass }

// Name of the plugin.
func (TaintNodesByCondition) Name() string { return "TaintNodesByCondition" }

// Admit adds the taint.
func (TaintNodesByCondition) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "nodes", "", Create) {
		return nil
	}
	node := a.Object.(*corev1.Node)
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		node.Spec.Taints = append(node.Spec.Taints, taint)
	}
	return nil
}
