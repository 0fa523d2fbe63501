package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa/api"
	"proa/client"
	"proa/internal/queue"
	"proa/internal/quota"
)

// resourceQuotas counts what the objects of a namespace use, so that admission can refuse what would be too much.
type resourceQuotas struct {
	Deps
	queue  *queue.Queue[string] // quotas
	access client.Resource[*corev1.ResourceQuota]
	quotas client.TypedLister[*corev1.ResourceQuota]
}

func newResourceQuotas(d Deps) Controller {
	return &resourceQuotas{Deps: d, queue: queue.New[string](), access: client.For[*corev1.ResourceQuota](d.Client)}
}

func (c *resourceQuotas) Run(ctx context.Context) error {
	c.quotas = c.access.Lister(ctx)
	scopes := []client.Scope{c.access.Scope()}
	for r := range c.counted() {
		scopes = append(scopes, client.Scope{Resource: r})
	}
	note := func(e client.Event) {
		if q, ok := e.Object().(*corev1.ResourceQuota); ok {
			c.queue.Add(q.Namespace + "/" + q.Name)
			return
		}
		// A new object has been counted by admission; what frees something has not.
		if e.Old == nil {
			return
		}
		pod, isPod := e.New.(*corev1.Pod)
		if e.New != nil && e.Resource.Plural != "services" && e.Resource.Plural != "persistentvolumeclaims" && !(isPod && (podEnded(pod) || pod.DeletionTimestamp != nil)) {
			return
		}
		for q := range c.quotas.All(e.Old.GetNamespace()) {
			if quota.Counted(e.Resource.GroupResource(), q.Spec.Hard) {
				c.queue.Add(q.Namespace + "/" + q.Name)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 3, c.sync, note, scopes...)
}

// counted yields the kinds whose objects quotas may count: all that live in namespaces.
func (c *resourceQuotas) counted() func(yield func(*api.Resource) bool) {
	return func(yield func(*api.Resource) bool) {
		for r := range c.Client.Table().All() {
			if r.Namespaced && !r.Virtual && r.Serves("list") && r.Plural != "events" && r.Plural != "resourcequotas" && !yield(r) {
				return
			}
		}
	}
}

func (c *resourceQuotas) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	q, ok := c.quotas.Get(namespace, name)
	if !ok || q.DeletionTimestamp != nil {
		return 0, nil
	}
	used := corev1.ResourceList{}
	for name := range q.Spec.Hard {
		used[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	now := time.Now()
	for r := range c.counted() {
		gr := r.GroupResource()
		if !quota.Counted(gr, q.Spec.Hard) {
			continue
		}
		for obj := range c.Client.Lister(ctx, client.Scope{Resource: r}).All(namespace) {
			if !quota.Matches(q, gr, obj) {
				continue
			}
			for name, amount := range quota.Usage(gr, obj, now) {
				if sum, ok := used[name]; ok {
					sum.Add(amount)
					used[name] = sum
				}
			}
		}
	}
	if equality.Semantic.DeepEqual(q.Status.Hard, q.Spec.Hard) && equality.Semantic.DeepEqual(q.Status.Used, used) {
		return 0, nil
	}
	next := q.DeepCopy()
	next.Status.Hard, next.Status.Used = q.Spec.Hard, used
	_, err := c.access.UpdateStatus(ctx, next)
	return 0, ignoreGone(err)
}
