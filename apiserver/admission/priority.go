package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

// Priority turns the priority class of a pod into its priority and preemption policy.
type Priority struct {
	classes client.TypedLister[*schedulingv1.PriorityClass]
}

// NewPriority returns the plugin.
func NewPriority(c client.Interface) *Priority {
	return &Priority{client.For[*schedulingv1.PriorityClass](c).Lister(context.Background())}
}

// Name of the plugin.
func (*Priority) Name() string { return "Priority" }

// SystemPriorityClasses are the two classes that exist in every cluster.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	lower := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{{
		ObjectMeta:       metav1.ObjectMeta{Name: "system-cluster-critical"},
		Value:            2000000000,
		PreemptionPolicy: &lower,
		Description:      "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
	}, {
		ObjectMeta:       metav1.ObjectMeta{Name: "system-node-critical"},
		Value:            2000001000,
		PreemptionPolicy: &lower,
		Description:      "Used for system critical pods that must not be moved from their current node.",
	}}
}

func (p *Priority) class(name string) (*schedulingv1.PriorityClass, bool) {
	if c, ok := p.classes.Get("", name); ok {
		return c, true
	}
	for _, c := range SystemPriorityClasses() {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// defaultClass is the lowest of those marked so.
func (p *Priority) defaultClass() *schedulingv1.PriorityClass {
	var found *schedulingv1.PriorityClass
	for c := range p.classes.All("") {
		if c.GlobalDefault && (found == nil || c.Value < found.Value) {
			found = c
		}
	}
	return found
}

// Admit resolves the class of a new pod; an update keeps what was resolved.
func (p *Priority) Admit(_ context.Context, a *Attributes) error {
	if on(a, "pods", "", Update) {
		pod, old := a.Object.(*corev1.Pod), a.OldObject.(*corev1.Pod)
		if pod.Spec.Priority == nil && old.Spec.Priority != nil {
			pod.Spec.Priority = new(*old.Spec.Priority)
		}
		if pod.Spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
			pod.Spec.PreemptionPolicy = new(*old.Spec.PreemptionPolicy)
		}
		return nil
	}
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	priority, policy := int32(0), corev1.PreemptLowerPriority
	class := p.defaultClass()
	if name := pod.Spec.PriorityClassName; name != "" {
		var ok bool
		if class, ok = p.class(name); !ok {
			return forbid(a, fmt.Errorf("no PriorityClass with name %v was found", name))
		}
	}
	if class != nil {
		pod.Spec.PriorityClassName = class.Name
		priority = class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if given := pod.Spec.Priority; given != nil && *given != priority {
		return forbid(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *given, priority))
	}
	if given := pod.Spec.PreemptionPolicy; given != nil && *given != policy {
		return forbid(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *given, policy))
	}
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = &priority, &policy
	return nil
}

// Validate lets only one class be the default.
func (p *Priority) Validate(_ context.Context, a *Attributes) error {
	if !on(a, "priorityclasses.scheduling.k8s.io", "", Create, Update) {
		return nil
	}
	class := a.Object.(*schedulingv1.PriorityClass)
	if !class.GlobalDefault {
		return nil
	}
	if present := p.defaultClass(); present != nil && (a.Operation == Create || present.Name != class.Name) {
		return forbid(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", present.Name))
	}
	return nil
}
