package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/client"
)

// Limits of the work on pods: burst is how many one step makes or deletes at most, atOnce how many calls wait at the same
// time, and settleTime how long a step waits at most for the events of the one before.
const (
	burst      = 500
	atOnce     = 64
	settleTime = time.Second
)

// podControl makes, adopts and deletes the pods of workload controllers, and records what users know from describe.
type podControl struct {
	Deps
	pods   client.Resource[*corev1.Pod]
	lister client.TypedLister[*corev1.Pod]
	// byOwner finds pods by the UID of their controller, and orphans by namespace.
	byOwner *client.Index[*corev1.Pod]
	seen    *seen
}

// newPodControl looks after the pods of owners of one kind: the others are not indexed, so that all workload controllers
// together know each pod once.
func newPodControl(d Deps, kind string) *podControl {
	return &podControl{Deps: d, pods: client.For[*corev1.Pod](d.Client), byOwner: podsByOwner(kind), seen: newSeen()}
}

func podsByOwner(kind string) *client.Index[*corev1.Pod] {
	return client.NewIndex(func(p *corev1.Pod) []string {
		switch ref := metav1.GetControllerOfNoCopy(p); {
		case ref == nil:
			return []string{orphansOf(p.Namespace)}
		case ref.Kind == kind:
			return []string{string(ref.UID)}
		}
		return nil
	})
}

func orphansOf(namespace string) string { return "orphans/" + namespace }

// podFromTemplate is a new pod that owner controls.
func podFromTemplate(t *corev1.PodTemplateSpec, owner api.Object, kind schema.GroupVersionKind) *corev1.Pod {
	prefix := owner.GetName() + "-"
	if len(prefix) > 58 {
		prefix = prefix[:58]
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: prefix, Namespace: owner.GetNamespace(), Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
	}, Spec: t.Spec}
	return pod.DeepCopy()
}

// create makes a pod and records that, on the owner.
func (c *podControl) create(ctx context.Context, owner api.Object, pod *corev1.Pod) (*corev1.Pod, error) {
	made, err := c.pods.Create(ctx, pod)
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Events.Eventf(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		}
		return nil, err
	}
	c.seen.expect(owner.GetUID(), made, false)
	c.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", made.Name)
	return made, nil
}

// delete removes a pod and records that, on the owner.
func (c *podControl) delete(ctx context.Context, owner api.Object, pod *corev1.Pod) error {
	err := c.pods.Delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Events.Eventf(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return err
	}
	c.seen.expect(owner.GetUID(), pod, true)
	c.Events.Eventf(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)
	return nil
}

// deleteAll deletes pods, many at a time.
func (c *podControl) deleteAll(ctx context.Context, owner api.Object, pods []*corev1.Pod) error {
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
	return forEachPod(pods, func(p *corev1.Pod) error { return c.delete(ctx, owner, p) })
}

// forEachPod calls do for pods, many at a time, and returns the first error.
func forEachPod(pods []*corev1.Pod, do func(*corev1.Pod) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, p := range pods {
		group.Go(func() error { return do(p) })
	}
	return group.Wait()
}

// settled reports whether the index shows what this controller wrote for owner. It must be asked before the pods are read:
// acting on an earlier reading would make or delete pods twice. Look again after settleTime, should no event come.
func (c *podControl) settled(owner api.Object) bool {
	if c.seen.idle(owner.GetUID()) {
		return true
	}
	known := map[types.UID]*corev1.Pod{}
	for p := range c.byOwner.Lookup(string(owner.GetUID())) {
		known[p.UID] = p
	}
	return c.seen.settle(owner.GetUID(), func(uid types.UID, w written) bool {
		p := known[uid]
		if w.gone {
			return p == nil || p.DeletionTimestamp != nil
		}
		if p != nil {
			return true
		}
		// Somebody may have deleted or taken it before it was seen, and the index may never show it.
		now, ok := c.lister.Get(owner.GetNamespace(), w.name)
		return !ok || now.UID != uid || !metav1.IsControlledBy(now, owner)
	})
}

// claim returns the pods that belong to owner: those it controls and the selector matches, plus matching orphans, which it
// adopts. Pods it controls that no longer match are released.
func (c *podControl) claim(ctx context.Context, owner api.Object, kind schema.GroupVersionKind, selector labels.Selector) ([]*corev1.Pod, error) {
	var mine []*corev1.Pod
	for p := range c.snapshot(string(owner.GetUID())) {
		if selector.Matches(labels.Set(p.Labels)) {
			mine = append(mine, p)
			continue
		}
		if owner.GetDeletionTimestamp() != nil || p.DeletionTimestamp != nil {
			continue
		}
		refs := slices.DeleteFunc(slices.Clone(p.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
		if _, err := patchOwners(ctx, c.Client, c.pods.Kind(), p, refs); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	if owner.GetDeletionTimestamp() != nil {
		return mine, nil
	}
	for p := range c.snapshot(orphansOf(owner.GetNamespace())) {
		if !selector.Matches(labels.Set(p.Labels)) || p.DeletionTimestamp != nil {
			continue
		}
		refs := append(slices.Clone(p.OwnerReferences), *metav1.NewControllerRef(owner, kind))
		adopted, err := patchOwners(ctx, c.Client, c.pods.Kind(), p, refs)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		mine = append(mine, adopted.(*corev1.Pod))
	}
	return mine, nil
}

// snapshot copies an index entry, so that the index is free while pods are written.
func (c *podControl) snapshot(key string) func(yield func(*corev1.Pod) bool) {
	return slices.Values(slices.Collect(c.byOwner.Lookup(key)))
}

// patchOwners replaces the owner references of the very version that was looked at.
func patchOwners(ctx context.Context, c client.Interface, r *api.Resource, obj api.Object, refs []metav1.OwnerReference) (api.Object, error) {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"ownerReferences": refs, "uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(),
	}})
	if err != nil {
		return nil, err
	}
	return c.Patch(ctx, r, obj.GetNamespace(), obj.GetName(), "", types.MergePatchType, data, metav1.PatchOptions{})
}

// slowStart calls do n times, in batches that double while all goes well, so that a hopeless series ends after few
// calls. It returns the number of successes and the first error.
func slowStart(n int, do func(i int) error) (int, error) {
	done := 0
	for batch := 1; done < n; batch *= 2 {
		size := min(batch, n-done)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var first error
		good := 0
		for i := done; i < done+size; i++ {
			wg.Go(func() {
				err := do(i)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					good++
				} else if first == nil {
					first = err
				}
			})
		}
		wg.Wait()
		if first != nil {
			return done + good, first
		}
		done += size
	}
	return done, nil
}

// seen remembers the pods that this process made and deleted and that the index may not have shown yet, per owner.
type seen struct {
	mu     sync.Mutex
	wanted map[types.UID]map[types.UID]written
}

// written is a pod that was made, or deleted (gone).
type written struct {
	name string
	gone bool
}

func newSeen() *seen { return &seen{wanted: map[types.UID]map[types.UID]written{}} }

func (s *seen) expect(owner types.UID, pod *corev1.Pod, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted[owner] == nil {
		s.wanted[owner] = map[types.UID]written{}
	}
	s.wanted[owner][pod.UID] = written{pod.Name, gone}
}

func (s *seen) idle(owner types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wanted[owner]) == 0
}

// settle forgets what check confirms and reports whether nothing is outstanding.
func (s *seen) settle(owner types.UID, check func(uid types.UID, w written) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.wanted[owner], check)
	if len(s.wanted[owner]) == 0 {
		delete(s.wanted, owner)
		return true
	}
	return false
}

// forget drops an owner that is gone.
func (s *seen) forget(owner types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wanted, owner)
}

// podActive reports whether a pod counts as a replica: it has not ended and is not being deleted.
func podActive(p *corev1.Pod) bool { return !podEnded(p) && p.DeletionTimestamp == nil }

// podAvailable reports whether a pod has been ready for a while; if it will be, it says when.
func podAvailable(p *corev1.Pod, minReady int32, now time.Time) (bool, time.Duration) {
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.PodReady || c.Status != corev1.ConditionTrue {
			continue
		}
		left := time.Duration(minReady)*time.Second - now.Sub(c.LastTransitionTime.Time)
		if minReady == 0 || left <= 0 {
			return true, 0
		}
		return false, left
	}
	return false, 0
}

// deletionOrder sorts pods so that those which are missed least come first: not scheduled, pending, not ready, cheap by
// annotation, on crowded nodes, ready for a short time, often restarted, young.
func deletionOrder(pods []*corev1.Pod) {
	perNode := map[string]int{}
	for _, p := range pods {
		if podActive(p) {
			perNode[p.Spec.NodeName]++
		}
	}
	phase := map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(flag(a.Spec.NodeName != ""), flag(b.Spec.NodeName != "")),
			cmp.Compare(phase[a.Status.Phase], phase[b.Status.Phase]),
			cmp.Compare(flag(podReady(a)), flag(podReady(b))),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(perNode[b.Spec.NodeName], perNode[a.Spec.NodeName]),
			readySince(b).Compare(readySince(a)),
			cmp.Compare(restarts(b), restarts(a)),
			b.CreationTimestamp.Time.Compare(a.CreationTimestamp.Time),
		)
	})
}

func deletionCost(p *corev1.Pod) int {
	n := 0
	if _, err := fmt.Sscan(p.Annotations[corev1.PodDeletionCost], &n); err != nil {
		return 0
	}
	return n
}

func readySince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func restarts(p *corev1.Pod) int32 {
	n := int32(0)
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		n = max(n, s.RestartCount)
	}
	return n
}

// ownerKey is the queue key of the controller of a pod, if it is of the kind.
func ownerKey(obj api.Object, kind string) (string, bool) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil || ref.Kind != kind {
		return "", false
	}
	return obj.GetNamespace() + "/" + ref.Name, true
}

// noteOwners adds the controllers of a pod, before and after a change, to a queue; an orphan goes to all that might adopt it.
func noteOwners(e client.Event, kind string, add func(key string), adopters func(pod *corev1.Pod)) {
	for _, obj := range []api.Object{e.Old, e.New} {
		if obj == nil {
			continue
		}
		if key, ok := ownerKey(obj, kind); ok {
			add(key)
		}
	}
	if pod, ok := e.New.(*corev1.Pod); ok && metav1.GetControllerOfNoCopy(pod) == nil && pod.DeletionTimestamp == nil {
		adopters(pod)
	}
}

// setTemplateLabel returns a copy of a template with one more label.
func setTemplateLabel(t *corev1.PodTemplateSpec, key, value string) *corev1.PodTemplateSpec {
	out := t.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[key] = value
	return out
}
