package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/client"
	"proa/internal/queue"
)

// evictionTimeout is how long an eviction that was allowed counts although its pod has not begun to end.
const evictionTimeout = 2 * time.Minute

// disruption keeps the status of PodDisruptionBudgets: how many of their pods may be evicted now.
type disruption struct {
	Deps
	queue   *queue.Queue[string]
	budgets client.TypedLister[*policyv1.PodDisruptionBudget]
	pods    client.TypedLister[*corev1.Pod]
}

func newDisruption(d Deps) Controller { return &disruption{Deps: d, queue: queue.New[string]()} }

func (c *disruption) Run(ctx context.Context) error {
	c.budgets = client.For[*policyv1.PodDisruptionBudget](c.Client).Lister(ctx)
	c.pods = client.For[*corev1.Pod](c.Client).Lister(ctx)
	note := func(e client.Event) {
		switch obj := e.Object().(type) {
		case *policyv1.PodDisruptionBudget:
			if e.New != nil {
				c.queue.Add(obj.Namespace + "/" + obj.Name)
			}
		case *corev1.Pod:
			for b := range c.budgets.All(obj.Namespace) {
				selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
				if err == nil && (selector.Matches(labels.Set(obj.Labels)) || e.Old != nil && selector.Matches(labels.Set(e.Old.GetLabels()))) {
					c.queue.Add(b.Namespace + "/" + b.Name)
				}
			}
		default: // a controller was scaled
			for b := range c.budgets.All(obj.GetNamespace()) {
				c.queue.Add(b.Namespace + "/" + b.Name)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 2, c.sync, note,
		client.For[*policyv1.PodDisruptionBudget](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope(),
		client.For[*appsv1.Deployment](c.Client).Scope(), client.For[*appsv1.ReplicaSet](c.Client).Scope(),
		client.For[*appsv1.StatefulSet](c.Client).Scope(), client.For[*corev1.ReplicationController](c.Client).Scope())
}

func (c *disruption) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	budget, ok := c.budgets.Get(namespace, name)
	if !ok || budget.DeletionTimestamp != nil {
		return 0, nil
	}
	next := budget.DeepCopy()
	next.Status.ObservedGeneration = budget.Generation
	var wait time.Duration
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	var pods []*corev1.Pod
	if err == nil {
		pods = slices.Collect(c.pods.Select(namespace, selector))
	}
	if len(pods) == 0 {
		c.Events.Event(budget, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, err := c.counts(ctx, budget, pods)
	if err != nil {
		c.Events.Eventf(budget, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		next.Status.DisruptionsAllowed = 0
		meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: err.Error(), ObservedGeneration: budget.Generation,
		})
	} else {
		next.Status.DisruptedPods, wait = c.disrupted(budget, pods)
		healthy := int32(0)
		for _, p := range pods {
			if _, going := next.Status.DisruptedPods[p.Name]; !going && p.DeletionTimestamp == nil && podReady(p) {
				healthy++
			}
		}
		next.Status.ExpectedPods, next.Status.DesiredHealthy, next.Status.CurrentHealthy = expected, desired, healthy
		next.Status.DisruptionsAllowed = max(0, healthy-desired)
		if expected <= 0 {
			next.Status.DisruptionsAllowed = 0
		}
		cond := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionTrue, Reason: policyv1.SufficientPodsReason, ObservedGeneration: budget.Generation}
		if next.Status.DisruptionsAllowed == 0 {
			cond.Status, cond.Reason = metav1.ConditionFalse, policyv1.InsufficientPodsReason
		}
		meta.SetStatusCondition(&next.Status.Conditions, cond)
	}
	if !equality.Semantic.DeepEqual(next.Status, budget.Status) {
		if _, err := client.For[*policyv1.PodDisruptionBudget](c.Client).UpdateStatus(ctx, next); err != nil {
			return 0, ignoreGone(err)
		}
	}
	return wait, nil
}

// disrupted keeps the evictions that are under way, and says when the oldest of them lapses.
func (c *disruption) disrupted(budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (map[string]metav1.Time, time.Duration) {
	out := maps.Clone(budget.Status.DisruptedPods)
	wait := time.Duration(0)
	for name, at := range out {
		i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name == name })
		left := time.Until(at.Add(evictionTimeout))
		if i < 0 || pods[i].DeletionTimestamp != nil || left <= 0 {
			if i >= 0 && pods[i].DeletionTimestamp == nil {
				c.Events.Eventf(pods[i], corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", budget.Namespace, budget.Name)
			}
			delete(out, name)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	if len(out) == 0 {
		out = nil
	}
	return out, wait
}

// counts returns how many pods there should be and how many must stay healthy.
func (c *disruption) counts(ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (expected, desired int32, err error) {
	switch {
	case budget.Spec.MaxUnavailable != nil:
		if expected, err = c.scale(ctx, budget, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(budget.Spec.MaxUnavailable, int(expected), true)
		return expected, max(0, expected-int32(n)), err
	case budget.Spec.MinAvailable != nil && budget.Spec.MinAvailable.Type == intstr.Int:
		return int32(len(pods)), budget.Spec.MinAvailable.IntVal, nil
	case budget.Spec.MinAvailable != nil:
		if expected, err = c.scale(ctx, budget, pods); err != nil {
			return 0, 0, err
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(budget.Spec.MinAvailable, int(expected), true)
		return expected, int32(n), err
	}
	return int32(len(pods)), 0, nil
}

// scale adds up the replicas that the pods' controllers want.
func (c *disruption) scale(ctx context.Context, budget *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (int32, error) {
	total, unmanaged := int32(0), 0
	counted := map[string]bool{}
	for _, p := range pods {
		owner := metav1.GetControllerOf(p)
		if owner == nil {
			unmanaged++ // a bare pod has no scale
			continue
		}
		if counted[string(owner.UID)] {
			continue
		}
		counted[string(owner.UID)] = true
		n, err := c.replicas(ctx, p.Namespace, owner)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if unmanaged > 0 {
		c.Events.Eventf(budget, corev1.EventTypeWarning, "UnmanagedPods", "%d of the matching pods have no controller, so the budget cannot be computed from a number of replicas; set .spec.minAvailable to an integer to have them counted", unmanaged)
	}
	return total, nil
}

func (c *disruption) replicas(ctx context.Context, namespace string, owner *metav1.OwnerReference) (int32, error) {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return 0, err
	}
	r := c.Client.Table().ForKind(gv.WithKind(owner.Kind).GroupKind())
	if r == nil {
		return 0, fmt.Errorf("%s does not implement the scale subresource", owner.Kind)
	}
	obj, ok := c.Client.Lister(ctx, client.Scope{Resource: r}).Get(namespace, owner.Name)
	if !ok || obj.GetUID() != owner.UID {
		return 0, nil
	}
	if rs, ok := obj.(*appsv1.ReplicaSet); ok {
		// A Deployment's wish counts, however its ReplicaSets share it during a roll-out.
		if d := metav1.GetControllerOf(rs); d != nil && d.Kind == "Deployment" {
			if deployment, ok := client.For[*appsv1.Deployment](c.Client).Lister(ctx).Get(namespace, d.Name); ok && deployment.UID == d.UID {
				obj, r = deployment, client.For[*appsv1.Deployment](c.Client).Kind()
			}
		}
	}
	sub, ok := r.Subresource("scale")
	if !ok {
		return 0, fmt.Errorf("%s does not implement the scale subresource", r.Key())
	}
	n, _, _ := sub.Scale.Get(obj)
	return n, nil
}
