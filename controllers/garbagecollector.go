package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
	"proa/internal/queue"
)

// garbageCollector removes objects whose owners are gone, and carries out the foreground and orphan policies of deletes. It
// remembers only who depends on whom; everything else it reads from the shared objects.
type garbageCollector struct {
	Deps
	queue *queue.Queue[item]

	mu         sync.Mutex
	dependents map[types.UID]map[item]bool
}

// item names an object for the queue.
type item struct {
	resource        *api.Resource
	namespace, name string
	uid             types.UID
}

func newGarbageCollector(d Deps) Controller {
	return &garbageCollector{Deps: d, queue: queue.New[item](), dependents: map[types.UID]map[item]bool{}}
}

func (c *garbageCollector) Run(ctx context.Context) error {
	var scopes []client.Scope
	for r := range c.Client.Table().All() {
		if !r.Virtual && r.Serves("list") && r.Serves("delete") && r.Plural != "events" {
			scopes = append(scopes, client.Scope{Resource: r})
		}
	}
	return loop(ctx, c.Deps, c.queue, 8, c.sync, c.note, scopes...)
}

func itemOf(r *api.Resource, obj api.Object) item {
	return item{r, obj.GetNamespace(), obj.GetName(), obj.GetUID()}
}

func (c *garbageCollector) note(e client.Event) {
	obj := e.Object()
	it := itemOf(e.Resource, obj)
	if e.Old != nil && e.New != nil && e.Old.GetUID() != e.New.GetUID() {
		c.gone(itemOf(e.Resource, e.Old), e.Old)
		e.Old = nil
	}
	if e.New == nil {
		c.gone(it, obj)
		return
	}
	owners := e.New.GetOwnerReferences()
	changed := e.Old == nil || !slices.EqualFunc(e.Old.GetOwnerReferences(), owners, func(a, b metav1.OwnerReference) bool {
		return a.UID == b.UID && ptr.Deref(a.BlockOwnerDeletion, false) == ptr.Deref(b.BlockOwnerDeletion, false)
	})
	if changed {
		c.mu.Lock()
		if e.Old != nil {
			c.unlink(it, e.Old)
		}
		for _, o := range owners {
			if c.dependents[o.UID] == nil {
				c.dependents[o.UID] = map[item]bool{}
			}
			c.dependents[o.UID][it] = ptr.Deref(o.BlockOwnerDeletion, false)
		}
		c.mu.Unlock()
	}
	if changed && (len(owners) > 0 || e.Old != nil) || e.New.GetDeletionTimestamp() != nil && collects(e.New) {
		c.queue.Add(it)
	}
	if changed && e.Old != nil {
		// An owner may have been waiting for this one.
		for _, o := range e.Old.GetOwnerReferences() {
			c.wakeOwner(it, o)
		}
	}
}

// collects reports whether one of the collector's finalizers is on the object.
func collects(obj api.Object) bool {
	return slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents) || slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// unlink forgets what it depends on. The caller holds mu.
func (c *garbageCollector) unlink(it item, obj api.Object) {
	for _, o := range obj.GetOwnerReferences() {
		delete(c.dependents[o.UID], it)
		if len(c.dependents[o.UID]) == 0 {
			delete(c.dependents, o.UID)
		}
	}
}

// gone takes note that an object was removed: its dependents have lost an owner, its owners may wait for it.
func (c *garbageCollector) gone(it item, obj api.Object) {
	c.mu.Lock()
	c.unlink(it, obj)
	for d := range c.dependents[it.uid] {
		c.queue.Add(d)
	}
	c.mu.Unlock()
	for _, o := range obj.GetOwnerReferences() {
		c.wakeOwner(it, o)
	}
}

func (c *garbageCollector) wakeOwner(dependent item, ref metav1.OwnerReference) {
	r := c.resource(ref)
	if r == nil {
		return
	}
	namespace := dependent.namespace
	if !r.Namespaced {
		namespace = ""
	}
	c.queue.Add(item{r, namespace, ref.Name, ref.UID})
}

func (c *garbageCollector) resource(ref metav1.OwnerReference) *api.Resource {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	return c.Client.Table().ForKind(gv.WithKind(ref.Kind).GroupKind())
}

// get reads an object as it is now, nil when it is gone or another one has its name.
func (c *garbageCollector) get(ctx context.Context, it item) (api.Object, error) {
	obj, err := c.Client.Get(ctx, it.resource, it.namespace, it.name)
	if apierrors.IsNotFound(err) || err == nil && obj.GetUID() != it.uid {
		return nil, nil
	}
	return obj, err
}

func (c *garbageCollector) sync(ctx context.Context, it item) (time.Duration, error) {
	obj, err := c.get(ctx, it)
	if obj == nil || err != nil {
		return 0, err
	}
	if obj.GetDeletionTimestamp() != nil {
		switch {
		case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
			return 0, c.orphan(ctx, it, obj)
		case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
			return 0, c.foreground(ctx, it, obj)
		}
		return 0, nil
	}
	if len(obj.GetOwnerReferences()) == 0 {
		return 0, nil
	}
	return 0, c.collect(ctx, it, obj)
}

// owners sorts the owners of an object into those that live, those that are gone and those that wait for their dependents.
func (c *garbageCollector) owners(ctx context.Context, it item, obj api.Object) (solid, dangling, waiting []types.UID, err error) {
	for _, ref := range obj.GetOwnerReferences() {
		r := c.resource(ref)
		if r == nil {
			solid = append(solid, ref.UID) // not ours to judge
			continue
		}
		namespace := it.namespace
		if !r.Namespaced {
			namespace = ""
		} else if it.namespace == "" {
			c.Events.Eventf(obj, corev1.EventTypeWarning, "OwnerRefInvalidNamespace", "ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, "", ref.Name, ref.UID, it.namespace)
			solid = append(solid, ref.UID)
			continue
		}
		owner, err := c.get(ctx, item{r, namespace, ref.Name, ref.UID})
		switch {
		case err != nil:
			return nil, nil, nil, err
		case owner == nil:
			dangling = append(dangling, ref.UID)
		case owner.GetDeletionTimestamp() != nil && slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents):
			waiting = append(waiting, ref.UID)
		default:
			solid = append(solid, ref.UID)
		}
	}
	return solid, dangling, waiting, nil
}

// collect deletes an object that no living owner holds, or takes the dead ones off it.
func (c *garbageCollector) collect(ctx context.Context, it item, obj api.Object) error {
	solid, dangling, waiting, err := c.owners(ctx, it, obj)
	if err != nil || len(dangling)+len(waiting) == 0 {
		return err
	}
	if len(solid) > 0 {
		return c.release(ctx, it, append(dangling, waiting...))
	}
	policy := metav1.DeletePropagationBackground
	mine := c.dependentsOf(it)
	if len(waiting) > 0 && c.circular(ctx, mine) {
		// The owner waits for this object, this one would wait for its dependents, and one of them waits already, in
		// the end for the owner. Somebody has to give way.
		if err := c.unblock(ctx, it, obj); err != nil {
			return err
		}
		if obj, err = c.get(ctx, it); obj == nil || err != nil {
			return err
		}
	}
	switch {
	case len(waiting) > 0 && len(mine) > 0:
		policy = metav1.DeletePropagationForeground
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	err = c.Client.Delete(ctx, it.resource, it.namespace, it.name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &it.uid, ResourceVersion: ptr.To(obj.GetResourceVersion())},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// dependentsOf returns who depends on an object, and whether its deletion in the foreground waits for them.
func (c *garbageCollector) dependentsOf(it item) map[item]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.dependents[it.uid])
}

// circular reports whether one of the dependents waits for its own dependents.
func (c *garbageCollector) circular(ctx context.Context, dependents map[item]bool) bool {
	for d := range dependents {
		if obj, err := c.get(ctx, d); err == nil && obj != nil && obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			return true
		}
	}
	return false
}

// unblock keeps an object's owners from waiting for it.
func (c *garbageCollector) unblock(ctx context.Context, it item, obj api.Object) error {
	refs := slices.Clone(obj.GetOwnerReferences())
	for i := range refs {
		refs[i].BlockOwnerDeletion = ptr.To(false)
	}
	return c.patch(ctx, it, obj, map[string]any{"ownerReferences": refs})
}

// foreground deletes the dependents of an object that waits for them, and lets it go once none blocks it.
func (c *garbageCollector) foreground(ctx context.Context, it item, obj api.Object) error {
	blocked := false
	for d, blocks := range c.dependentsOf(it) {
		blocked = blocked || blocks
		c.queue.Add(d)
	}
	if blocked {
		return nil
	}
	return c.removeFinalizer(ctx, it, obj, metav1.FinalizerDeleteDependents)
}

// orphan takes an object off its dependents and then lets it go.
func (c *garbageCollector) orphan(ctx context.Context, it item, obj api.Object) error {
	for d := range c.dependentsOf(it) {
		if err := c.release(ctx, d, []types.UID{it.uid}); err != nil {
			return fmt.Errorf("orphan %s %s: %w", d.resource.Key(), d.name, err)
		}
	}
	return c.removeFinalizer(ctx, it, obj, metav1.FinalizerOrphanDependents)
}

// release takes owners off an object.
func (c *garbageCollector) release(ctx context.Context, it item, owners []types.UID) error {
	obj, err := c.get(ctx, it)
	if obj == nil || err != nil {
		return err
	}
	refs := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(o metav1.OwnerReference) bool { return slices.Contains(owners, o.UID) })
	return c.patch(ctx, it, obj, map[string]any{"ownerReferences": refs})
}

func (c *garbageCollector) removeFinalizer(ctx context.Context, it item, obj api.Object, name string) error {
	list := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name })
	return c.patch(ctx, it, obj, map[string]any{"finalizers": list})
}

// patch changes metadata of the very version that was looked at.
func (c *garbageCollector) patch(ctx context.Context, it item, obj api.Object, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = it.uid, obj.GetResourceVersion()
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = c.Client.Patch(ctx, it.resource, it.namespace, it.name, "", types.MergePatchType, data, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
