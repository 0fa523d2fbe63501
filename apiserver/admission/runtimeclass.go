package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa/client"
)

// RuntimeClass adds a class's overhead, node selector and tolerations to its pods.
type RuntimeClass struct {
	classes client.TypedLister[*nodev1.RuntimeClass]
}

// NewRuntimeClass returns the plugin.
func NewRuntimeClass(c client.Interface) *RuntimeClass {
	return &RuntimeClass{client.For[*nodev1.RuntimeClass](c).Lister(context.Background())}
}

// Name of the plugin.
func (*RuntimeClass) Name() string { return "RuntimeClass" }

func (p *RuntimeClass) of(a *Attributes, pod *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if pod.Spec.RuntimeClassName == nil {
		return nil, nil
	}
	class, ok := p.classes.Get("", *pod.Spec.RuntimeClassName)
	if !ok {
		return nil, forbid(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", *pod.Spec.RuntimeClassName))
	}
	return class, nil
}

// Admit adds what the class says.
func (p *RuntimeClass) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	class, err := p.of(a, pod)
	if class == nil || err != nil {
		return err
	}
	if class.Overhead != nil && len(class.Overhead.PodFixed) > 0 && pod.Spec.Overhead == nil {
		pod.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	for key, value := range class.Scheduling.NodeSelector {
		if have, ok := pod.Spec.NodeSelector[key]; ok && have != value {
			return forbid(a, fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, have))
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return equality.Semantic.DeepEqual(have, t) }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, *t.DeepCopy())
		}
	}
	return nil
}

// Validate lets no pod choose its overhead.
func (p *RuntimeClass) Validate(_ context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	class, err := p.of(a, pod)
	if err != nil {
		return err
	}
	if class != nil && class.Overhead != nil && len(class.Overhead.PodFixed) > 0 {
		if !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead) {
			return forbidText(a, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
	} else if len(pod.Spec.Overhead) > 0 {
		return forbidText(a, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return nil
}
