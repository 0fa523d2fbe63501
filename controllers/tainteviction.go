package controllers

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"proa/client"
	"proa/internal/queue"
)

// taintEviction deletes the pods that do not tolerate a NoExecute taint of their node, at once or when their toleration
// runs out.
type taintEviction struct {
	Deps
	queue  *queue.Queue[string] // pods
	pods   client.TypedLister[*corev1.Pod]
	nodes  client.TypedLister[*corev1.Node]
	byNode *client.Index[*corev1.Pod]

	mu sync.Mutex
	// since is when a pod's node was first seen with a taint that it tolerates for a while only.
	since map[string]time.Time
}

func newTaintEviction(d Deps) Controller {
	return &taintEviction{
		Deps: d, queue: queue.New[string](), since: map[string]time.Time{},
		byNode: client.NewIndex(func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }),
	}
}

func (c *taintEviction) Run(ctx context.Context) error {
	c.pods = client.For[*corev1.Pod](c.Client).Lister(ctx)
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	note := func(e client.Event) {
		c.byNode.Apply(e)
		switch obj := e.Object().(type) {
		case *corev1.Pod:
			key := obj.Namespace + "/" + obj.Name
			if e.New == nil {
				c.mu.Lock()
				delete(c.since, key)
				c.mu.Unlock()
				return
			}
			old, _ := e.Old.(*corev1.Pod)
			if old != nil && old.UID != obj.UID {
				c.mu.Lock()
				delete(c.since, key)
				c.mu.Unlock()
				old = nil
			}
			if obj.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == "" || len(old.Spec.Tolerations) != len(obj.Spec.Tolerations)) {
				if node, ok := c.nodes.Get("", obj.Spec.NodeName); ok && len(noExecute(node)) > 0 {
					c.queue.Add(key)
				}
			}
		case *corev1.Node:
			old, _ := e.Old.(*corev1.Node)
			if e.New == nil || len(noExecute(obj)) == 0 && (old == nil || len(noExecute(old)) == 0) {
				return
			}
			for p := range c.byNode.Lookup(obj.Name) {
				c.queue.Add(p.Namespace + "/" + p.Name)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 8, c.sync, note, client.For[*corev1.Node](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope())
}

func noExecute(node *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

// tolerance is how long a pod may stay on a node with the taints: forever (ok), or for the shortest of its tolerations.
func tolerance(pod *corev1.Pod, taints []corev1.Taint) (d time.Duration, forever bool) {
	forever = true
	for i := range taints {
		tolerated := false
		for _, t := range pod.Spec.Tolerations {
			if !t.ToleratesTaint(klog.Background(), &taints[i], false) {
				continue
			}
			tolerated = true
			if t.TolerationSeconds != nil {
				if s := time.Duration(max(0, *t.TolerationSeconds)) * time.Second; forever || s < d {
					d, forever = s, false
				}
			}
			break // the first toleration that fits a taint counts
		}
		if !tolerated {
			return 0, false
		}
	}
	return d, forever
}

func (c *taintEviction) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	pod, ok := c.pods.Get(namespace, name)
	if !ok || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || podEnded(pod) {
		return 0, nil
	}
	node, ok := c.nodes.Get("", pod.Spec.NodeName)
	if !ok {
		return 0, nil
	}
	taints := noExecute(node)
	d, forever := tolerance(pod, taints)
	c.mu.Lock()
	began, waiting := c.since[key]
	if forever || len(taints) == 0 {
		delete(c.since, key)
		c.mu.Unlock()
		if waiting {
			c.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Cancelling deletion of Pod %s", key))
		}
		return 0, nil
	}
	if !waiting {
		began = time.Now()
		c.since[key] = began
	}
	c.mu.Unlock()
	if left := d - time.Since(began); left > 0 {
		return left, nil
	}
	c.Events.Event(pod, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Marking for deletion Pod %s", key))
	if err := markDisrupted(ctx, c.Client, pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", false); err != nil && !apierrors.IsNotFound(err) {
		return 0, err
	}
	err := client.For[*corev1.Pod](c.Client).Delete(ctx, namespace, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}
