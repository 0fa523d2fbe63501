// Package eviction answers POST pods/NAME/eviction: it deletes a pod if the disruption budgets that cover it allow it, and
// takes the deletion off the budget first, so that concurrent evictions never exceed it.
package eviction

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/apiserver/request"
	"proa/client"
)

const (
	// retries bounds how often an eviction starts over when the pod or the budget changes meanwhile.
	retries = 20
	// maxDisrupted bounds Status.DisruptedPods: more means that the disruption controller does not keep up.
	maxDisrupted = 2000
	// retrySoon is what a client is told when the budget's status is out of date.
	retrySoon = 10

	violates = "Cannot evict pod as it would violate the pod's disruption budget."
)

// Posts are the creates that this package answers.
func Posts(c client.Interface) map[string]request.Poster {
	e := evictor{
		pods:    client.For[*corev1.Pod](c),
		budgets: client.For[*policyv1.PodDisruptionBudget](c),
	}
	e.covering = e.budgets.Lister(context.Background())
	return map[string]request.Poster{"pods/eviction": e.post}
}

type evictor struct {
	pods     client.Resource[*corev1.Pod]
	budgets  client.Resource[*policyv1.PodDisruptionBudget]
	covering client.TypedLister[*policyv1.PodDisruptionBudget]
}

func (e evictor) post(ctx context.Context, p request.Post) (runtime.Object, error) {
	body, ok := p.Body.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", p.Body))
	}
	if body.Name != "" && body.Name != p.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	options := metav1.DeleteOptions{}
	if body.DeleteOptions != nil {
		options = *body.DeleteOptions.DeepCopy()
	}
	if p.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var err error
	charged := false
	for range retries {
		var done bool
		if done, err = e.evict(ctx, p, options, &charged); done && err == nil {
			return &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: 201,
			}, nil
		}
		// A conflict with what the client wanted of the pod stays one.
		if err != nil && (!apierrors.IsConflict(err) || done) {
			return nil, err
		}
	}
	return nil, apierrors.NewTimeoutError(fmt.Sprintf("couldn't evict pod %s in time: %v", p.Name, err), retrySoon)
}

// evict makes one attempt. done with a conflict means that trying again is of no use. An eviction is charged to its budget
// once, however many attempts the deletion takes.
func (e evictor) evict(ctx context.Context, p request.Post, options metav1.DeleteOptions, charged *bool) (done bool, err error) {
	pod, err := e.pods.Get(ctx, p.Namespace, p.Name)
	if err != nil {
		return true, err
	}
	if pre := options.Preconditions; pre != nil {
		if pre.UID != nil && *pre.UID != pod.UID {
			return true, precondition(p.Name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *pre.UID, pod.UID))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != pod.ResourceVersion {
			return true, precondition(p.Name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *pre.ResourceVersion, pod.ResourceVersion))
		}
	}
	// Budgets protect what is running: these can go without one.
	if ignoresBudget(pod) {
		// Nothing may start to run between the look and the deletion.
		return e.delete(ctx, pod, options, true)
	}
	budget, err := e.budgetOf(pod)
	if err != nil {
		return true, err
	}
	if budget == nil {
		return e.delete(ctx, pod, options, false)
	}
	ready := isReady(pod)
	if !ready && unhealthyMayGo(budget) {
		return e.delete(ctx, pod, options, true)
	}
	if *charged {
		return e.delete(ctx, pod, options, false)
	}
	if err := check(budget); err != nil {
		return true, err
	}
	if len(options.DryRun) == 0 {
		next := budget.DeepCopy()
		next.Status.DisruptionsAllowed--
		if next.Status.DisruptedPods == nil {
			next.Status.DisruptedPods = map[string]metav1.Time{}
		}
		// Tells the disruption controller that this pod is about to go, before it sees the deletion.
		next.Status.DisruptedPods[pod.Name] = metav1.NewTime(time.Now())
		if _, err := e.budgets.UpdateStatus(ctx, next); err != nil {
			return false, err
		}
		*charged = true
	}
	return e.delete(ctx, pod, options, false)
}

func precondition(name string, err error) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, err)
}

func ignoresBudget(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// unhealthyMayGo: a pod that is not ready does not count for the budget; by the default policy it still may only go while
// the application is not already disrupted.
func unhealthyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if b.Spec.UnhealthyPodEvictionPolicy != nil && *b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// budgetOf returns the budget that covers the pod, nil for none. Two are an error of whoever made them.
func (e evictor) budgetOf(pod *corev1.Pod) (*policyv1.PodDisruptionBudget, error) {
	var found *policyv1.PodDisruptionBudget
	for b := range e.covering.All(pod.Namespace) {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if found != nil {
			return nil, internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
		}
		found = b
	}
	return found, nil
}

func internal(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError, Message: text,
	}}
}

// check says whether the budget allows one more disruption.
func check(b *policyv1.PodDisruptionBudget) error {
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return tooMany(retrySoon, fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case b.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}, b.Name,
			fmt.Errorf("pdb disruptions allowed is negative"))
	case len(b.Status.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}, b.Name,
			fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	case b.Status.DisruptionsAllowed == 0:
		text := fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
		if condition := syncFailed(b); condition != nil {
			text = fmt.Sprintf("The disruption budget %s does not allow evicting pods currently because it failed sync: %v", b.Name, condition.Message)
		}
		return tooMany(0, text)
	}
	return nil
}

func syncFailed(b *policyv1.PodDisruptionBudget) *metav1.Condition {
	for i, c := range b.Status.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Status == metav1.ConditionFalse && c.Reason == policyv1.SyncFailedReason {
			return &b.Status.Conditions[i]
		}
	}
	return nil
}

func tooMany(after int, text string) error {
	err := apierrors.NewTooManyRequests(violates, after)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: text})
	return err
}

// delete marks the pod as disrupted and deletes it. unchanged wants it to be as it was seen.
func (e evictor) delete(ctx context.Context, pod *corev1.Pod, options metav1.DeleteOptions, unchanged bool) (bool, error) {
	version := pod.ResourceVersion
	if len(options.DryRun) == 0 && pod.DeletionTimestamp == nil {
		next := pod.DeepCopy()
		setCondition(next)
		updated, err := e.pods.UpdateStatus(ctx, next)
		if err != nil {
			return apierrors.IsNotFound(err), err
		}
		version = updated.ResourceVersion
	}
	pre := metav1.Preconditions{}
	if options.Preconditions != nil {
		pre = *options.Preconditions
	}
	pre.UID = &pod.UID
	// The mark has just changed the version that the client may have named.
	if pre.ResourceVersion != nil || unchanged {
		pre.ResourceVersion = &version
	}
	options.Preconditions = &pre
	err := e.pods.Delete(ctx, pod.Namespace, pod.Name, options)
	return err == nil || apierrors.IsNotFound(err), err
}

func setCondition(pod *corev1.Pod) {
	want := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		Message: "Eviction API: evicting", LastTransitionTime: metav1.NewTime(time.Now()),
	}
	for i, c := range pod.Status.Conditions {
		if c.Type == want.Type {
			if c.Status == want.Status {
				want.LastTransitionTime = c.LastTransitionTime
			}
			pod.Status.Conditions[i] = want
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, want)
}
