package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
	"proa/internal/queue"
)

// pvcFinalizer keeps a claim that is being deleted while pods use it.
const pvcFinalizer = "kubernetes.io/pvc-protection"

// pvcProtection lets deleted claims go once no pod on a node uses them.
type pvcProtection struct {
	Deps
	queue  *queue.Queue[string]
	claims client.TypedLister[*corev1.PersistentVolumeClaim]
	users  *client.Index[*corev1.Pod] // by claim
}

func newPVCProtection(d Deps) Controller {
	return &pvcProtection{Deps: d, queue: queue.New[string](), users: client.NewIndex(claimsOf)}
}

func (c *pvcProtection) Run(ctx context.Context) error {
	c.claims = client.For[*corev1.PersistentVolumeClaim](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		c.users.Apply(e)
		switch obj := e.Object().(type) {
		case *corev1.PersistentVolumeClaim:
			if e.New != nil && obj.DeletionTimestamp != nil {
				c.queue.Add(obj.Namespace + "/" + obj.Name)
			}
		case *corev1.Pod:
			if e.New != nil {
				return // a pod uses its claims until it is gone
			}
			for _, key := range claimsOf(obj) {
				c.queue.Add(key)
			}
		}
	}, client.For[*corev1.PersistentVolumeClaim](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope())
}

// claimsOf are the keys of the claims that a pod may use. Pods without a node use none: one that refers to a claim that is
// being deleted is not scheduled any more.
func claimsOf(p *corev1.Pod) []string {
	if p.Spec.NodeName == "" {
		return nil
	}
	var keys []string
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			keys = append(keys, p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			keys = append(keys, p.Namespace+"/"+p.Name+"-"+v.Name)
		}
	}
	return keys
}

func (c *pvcProtection) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	claim, ok := c.claims.Get(namespace, name)
	if !ok || claim.DeletionTimestamp == nil || !slices.Contains(claim.Finalizers, pvcFinalizer) {
		return 0, nil
	}
	for p := range c.users.Lookup(key) {
		if uses(p, claim) {
			return 0, nil
		}
	}
	// What is known here may be behind: a pod can have been bound a moment ago.
	pods, err := client.For[*corev1.Pod](c.Client).List(ctx, namespace, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return uses(p, claim) }) {
		return 0, nil
	}
	next := claim.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == pvcFinalizer })
	_, err = client.For[*corev1.PersistentVolumeClaim](c.Client).Update(ctx, next)
	return 0, ignoreMissing(err)
}

// uses tells whether a pod on a node has a volume of the claim; a volume of its own counts only if the claim is the pod's.
func uses(p *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if p.Spec.NodeName == "" || p.Namespace != claim.Namespace {
		return false
	}
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName == claim.Name
		}
		return v.Ephemeral != nil && p.Name+"-"+v.Name == claim.Name && metav1.IsControlledBy(claim, p)
	})
}
