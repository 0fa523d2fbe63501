package admission

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const defaultTolerationSeconds = 300

// DefaultTolerationSeconds lets pods stay for five minutes on a node that is not ready or cannot be reached.
type DefaultTolerationSeconds struct{ Pass }

// Name of the plugin.
func (DefaultTolerationSeconds) Name() string { return "DefaultTolerationSeconds" }

// Admit adds the tolerations that are missing.
func (DefaultTolerationSeconds) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create, Update) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		}) {
			continue
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(defaultTolerationSeconds)),
		})
	}
	return nil
}
