package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// orphanQuarantine is how long a node must be missing before its pods are removed.
const orphanQuarantine = 40 * time.Second

// podGC removes pods that nobody else will: finished ones beyond a threshold, those of nodes that are gone, those deleted
// before they were scheduled, and those on nodes marked out of service.
type podGC struct {
	Deps
	queue    *queue.Queue[string] // one key: "all"; missing nodes by name
	pods     client.TypedLister[*corev1.Pod]
	nodes    client.TypedLister[*corev1.Node]
	byNode   *client.Index[*corev1.Pod]
	finished int
}

func newPodGC(d Deps) Controller {
	return &podGC{Deps: d, queue: queue.New[string](), byNode: client.NewIndex(func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })}
}

// allPods is the queue's key for the look at finished pods.
const allPods = "*"

func (c *podGC) Run(ctx context.Context) error {
	c.pods = client.For[*corev1.Pod](c.Client).Lister(ctx)
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	threshold := cmp.Or(c.Config.TerminatedPodGCThreshold, 12500)
	note := func(e client.Event) {
		c.byNode.Apply(e)
		switch obj := e.Object().(type) {
		case *corev1.Node:
			if e.New == nil {
				c.queue.AddAfter(obj.Name, orphanQuarantine)
			} else if outOfService(obj) {
				c.queue.Add(obj.Name)
			}
		case *corev1.Pod:
			if old, ok := e.Old.(*corev1.Pod); ok && podEnded(old) {
				c.finished--
			}
			if e.New == nil {
				return
			}
			if podEnded(obj) {
				if c.finished++; c.finished > threshold {
					c.queue.Add(allPods)
				}
			}
			if obj.Spec.NodeName == "" && obj.DeletionTimestamp != nil {
				c.queue.Add("")
			}
			if obj.Spec.NodeName != "" && (e.Old == nil || e.Old.(*corev1.Pod).Spec.NodeName == "" || obj.DeletionTimestamp != nil) {
				if node, ok := c.nodes.Get("", obj.Spec.NodeName); ok && outOfService(node) && obj.DeletionTimestamp != nil {
					c.queue.Add(node.Name)
				} else if !ok {
					c.queue.AddAfter(obj.Spec.NodeName, orphanQuarantine)
				}
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 1, func(ctx context.Context, key string) (time.Duration, error) {
		if key == allPods {
			return 0, c.trim(ctx, threshold)
		}
		return 0, c.sweep(ctx, key)
	}, note, client.For[*corev1.Node](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope())
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// trim removes the oldest finished pods beyond the threshold.
func (c *podGC) trim(ctx context.Context, threshold int) error {
	var ended []*corev1.Pod
	for p := range c.pods.All("") {
		if podEnded(p) && p.DeletionTimestamp == nil {
			ended = append(ended, p)
		}
	}
	slices.SortFunc(ended, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range ended[:max(0, len(ended)-threshold)] {
		if err := c.remove(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the pods of a node that is missing or out of service; "" stands for pods on no node that are being deleted.
func (c *podGC) sweep(ctx context.Context, name string) error {
	var pods []*corev1.Pod
	node, exists := c.nodes.Get("", name)
	for p := range c.byNode.Lookup(name) {
		if name == "" && p.DeletionTimestamp != nil || name != "" && !exists || exists && outOfService(node) && p.DeletionTimestamp != nil && !nodeReady(node) {
			pods = append(pods, p)
		}
	}
	for _, p := range pods {
		// Pods that stay because of finalizers must not look as if they ran.
		if !podEnded(p) {
			reason := ""
			if name != "" && !exists {
				reason = "DeletionByPodGC"
			}
			if err := markDisrupted(ctx, c.Client, p, reason, "PodGC: node no longer exists", true); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("mark pod %s/%s: %w", p.Namespace, p.Name, err)
			}
		}
		if err := c.remove(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (c *podGC) remove(ctx context.Context, p *corev1.Pod) error {
	err := client.For[*corev1.Pod](c.Client).Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// markDisrupted sets the DisruptionTarget condition of a pod that is about to be deleted, unless there is no reason; fail
// also ends the pod.
func markDisrupted(ctx context.Context, c client.Interface, pod *corev1.Pod, reason, message string, fail bool) error {
	status := map[string]any{}
	if reason != "" {
		status["conditions"] = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		}}
	}
	if fail {
		status["phase"] = corev1.PodFailed
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return err
	}
	// The collector may patch the status of pods, not replace it.
	_, err = client.For[*corev1.Pod](c).Patch(ctx, pod.Namespace, pod.Name, "status", types.StrategicMergePatchType, data)
	return err
}
