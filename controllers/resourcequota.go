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

// recount is how long after a charge of admission the objects are counted again: the charged one is committed later, or
// refused by something else.
const recount = 10 * time.Second

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
	var scopes []client.Scope
	for r := range c.counted() {
		scopes = append(scopes, client.Scope{Resource: r})
	}
	note := func(e client.Event) {
		if q, ok := e.Object().(*corev1.ResourceQuota); ok {
			old, known := e.Old.(*corev1.ResourceQuota)
			switch key := q.Namespace + "/" + q.Name; {
			case !known || !equality.Semantic.DeepEqual(old.Spec, q.Spec):
				c.queue.Add(key)
			case e.New != nil:
				c.queue.AddAfter(key, recount) // admission charged something that may be in the store by then, or never
			}
		}
		if e.Old == nil {
			// A new object has been counted by admission; what frees something has not.
			c.concern(e, func(key string) { c.queue.AddAfter(key, recount) })
			return
		}
		pod, isPod := e.New.(*corev1.Pod)
		if e.New != nil && e.Resource.Plural != "services" && e.Resource.Plural != "persistentvolumeclaims" && !(isPod && (podEnded(pod) || pod.DeletionTimestamp != nil)) {
			return
		}
		c.concern(e, c.queue.Add)
	}
	return loop(ctx, c.Deps, c.queue, 3, c.sync, note, scopes...)
}

// concern calls add for every quota that may count the object of e.
func (c *resourceQuotas) concern(e client.Event, add func(key string)) {
	for q := range c.quotas.All(e.Object().GetNamespace()) {
		if quota.Counted(e.Resource.GroupResource(), q.Spec.Hard) {
			add(q.Namespace + "/" + q.Name)
		}
	}
}

// counted yields the kinds whose objects quotas may count: all that live in namespaces, quotas themselves among them.
func (c *resourceQuotas) counted() func(yield func(*api.Resource) bool) {
	return func(yield func(*api.Resource) bool) {
		for r := range c.Client.Table().All() {
			if r.Namespaced && !r.Virtual && r.Serves("list") && r.Plural != "events" && !yield(r) {
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
