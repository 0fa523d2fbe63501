package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// statefulSets keeps numbered pods, each with a name and claims of its own, in order.
type statefulSets struct {
	*podControl
	queue   *queue.Queue[string]
	access  client.Resource[*appsv1.StatefulSet]
	sets    client.TypedLister[*appsv1.StatefulSet]
	claims  client.Resource[*corev1.PersistentVolumeClaim]
	claimed client.TypedLister[*corev1.PersistentVolumeClaim]
	history *history
}

func newStatefulSets(d Deps) Controller {
	return &statefulSets{
		podControl: newPodControl(d, "StatefulSet"), queue: queue.New[string](), access: client.For[*appsv1.StatefulSet](d.Client),
		claims: client.For[*corev1.PersistentVolumeClaim](d.Client),
	}
}

func (c *statefulSets) Run(ctx context.Context) error {
	c.lister = c.pods.Lister(ctx)
	c.history = newHistory(ctx, c.Deps)
	c.sets, c.claimed = c.access.Lister(ctx), c.claims.Lister(ctx)
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		switch obj := e.Object().(type) {
		case *appsv1.StatefulSet:
			c.queue.Add(obj.Namespace + "/" + obj.Name)
		case *appsv1.ControllerRevision:
			if key, ok := ownerKey(obj, "StatefulSet"); ok {
				c.queue.Add(key)
			}
		case *corev1.Pod:
			noteOwners(e, "StatefulSet", c.queue.Add, func(pod *corev1.Pod) {
				for s := range c.sets.All(pod.Namespace) {
					if selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
						c.queue.Add(s.Namespace + "/" + s.Name)
					}
				}
			})
		}
	}
	return loop(ctx, c.Deps, c.queue, 4, c.sync, note, c.access.Scope(), c.pods.Scope(), c.history.access.Scope())
}

// setRun is one step's view of a StatefulSet.
type setRun struct {
	*appsv1.StatefulSet
	current, update *appsv1.ControllerRevision
	// replicas by ordinal from the first on, nil where a pod is missing; condemned are those beyond, highest first.
	replicas, condemned []*corev1.Pod
	pods                []*corev1.Pod
	collisions          int32
}

func (s *setRun) first() int {
	return int(ptr.Deref(s.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start)
}

func (s *setRun) parallel() bool { return s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement }

// ordinal of a pod of the set, -1 if its name is none of the set's.
func (s *setRun) ordinal(p *corev1.Pod) int {
	rest, ok := strings.CutPrefix(p.Name, s.Name+"-")
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(rest)
	if err != nil || strconv.Itoa(n) != rest {
		return -1
	}
	return n
}

func podRevision(p *corev1.Pod) string { return p.Labels[appsv1.StatefulSetRevisionLabel] }

func (c *statefulSets) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	set, ok := c.sets.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return 0, nil
	}
	kind := c.access.Kind().GroupVersionKind
	pods, err := c.claim(ctx, set, kind, selector)
	if err != nil {
		return 0, err
	}
	revisions, err := c.history.list(ctx, set, kind, selector)
	if err != nil {
		return 0, err
	}
	s := &setRun{StatefulSet: set, collisions: ptr.Deref(set.Status.CollisionCount, 0)}
	if set.DeletionTimestamp == nil {
		update, all, err := c.history.current(ctx, set, kind, &set.Spec.Template, revisions, &s.collisions, false)
		if err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return 0, nil
			}
			return 0, err
		}
		revisions, s.update, s.current = all, update, update
		for _, r := range revisions {
			if r.Name == set.Status.CurrentRevision {
				s.current = r
			}
		}
	}
	s.sort(pods)
	var stepErr error
	if set.DeletionTimestamp == nil {
		if stepErr = c.ownClaims(ctx, s); stepErr == nil {
			stepErr = c.step(ctx, s)
		}
	}
	wait, err := c.updateStatus(ctx, s)
	if err == nil && set.DeletionTimestamp == nil {
		err = c.history.trim(ctx, revisions, set.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool {
			return r.Name == s.update.Name || r.Name == s.current.Name || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return podRevision(p) == r.Name })
		})
	}
	if stepErr != nil {
		if apierrors.HasStatusCause(stepErr, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		return 0, stepErr
	}
	return wait, err
}

func (s *setRun) sort(pods []*corev1.Pod) {
	n := int(ptr.Deref(s.Spec.Replicas, 1))
	s.replicas = make([]*corev1.Pod, n)
	for _, p := range pods {
		i := s.ordinal(p)
		switch {
		case i < 0:
			continue
		case i >= s.first() && i < s.first()+n:
			s.replicas[i-s.first()] = p
		default:
			s.condemned = append(s.condemned, p)
		}
		s.pods = append(s.pods, p)
	}
	slices.SortFunc(s.condemned, func(a, b *corev1.Pod) int { return s.ordinal(b) - s.ordinal(a) })
}

// healthy reports whether a pod is up: running, ready and not being deleted.
func healthy(p *corev1.Pod) bool {
	return p != nil && p.Status.Phase == corev1.PodRunning && podReady(p) && p.DeletionTimestamp == nil
}

// wantedRevision is the revision that a new pod of an ordinal gets: below the partition the current one.
func (s *setRun) wantedRevision(ordinal int) *appsv1.ControllerRevision {
	if s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && ordinal < s.first()+s.partition() {
		return s.current
	}
	return s.update
}

// partition counts from the first ordinal.
func (s *setRun) partition() int {
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil {
		return int(ptr.Deref(r.Partition, 0))
	}
	return 0
}

// step does what comes next: make, replace, scale down or update, one pod at a time unless the set is parallel.
func (c *statefulSets) step(ctx context.Context, s *setRun) error {
	for i, p := range s.replicas {
		ordinal := s.first() + i
		if p != nil && podEnded(p) && p.DeletionTimestamp == nil {
			if p.Status.Phase == corev1.PodFailed {
				c.Events.Eventf(s.StatefulSet, corev1.EventTypeWarning, "RecreatingFailedPod", "StatefulSet %s/%s is recreating failed Pod %s", s.Namespace, s.Name, p.Name)
			} else {
				c.Events.Eventf(s.StatefulSet, corev1.EventTypeNormal, "RecreatingTerminatedPod", "StatefulSet %s/%s is recreating terminated Pod %s", s.Namespace, s.Name, p.Name)
			}
			if err := c.deletePod(ctx, s, p); err != nil {
				return err
			}
			if !s.parallel() {
				return nil
			}
			continue
		}
		if p == nil {
			if err := c.createPod(ctx, s, ordinal); err != nil {
				return err
			}
			if !s.parallel() {
				return nil
			}
			continue
		}
		if !s.parallel() {
			if p.DeletionTimestamp != nil {
				return nil
			}
			if !healthy(p) {
				return nil
			}
			if ok, _ := podAvailable(p, s.Spec.MinReadySeconds, time.Now()); !ok {
				return nil
			}
		}
		if err := c.ensureClaims(ctx, s, ordinal, false); err != nil {
			return err
		}
		if err := c.ensureIdentity(ctx, s, p, ordinal); err != nil {
			return err
		}
	}
	for i, p := range s.condemned {
		if p.DeletionTimestamp != nil {
			if s.parallel() {
				continue
			}
			return nil
		}
		if !s.parallel() && !healthy(p) {
			// One that is not healthy stays until all before it are.
			for _, q := range slices.Concat(s.replicas, s.condemned[i+1:]) {
				if !healthy(q) {
					return nil
				}
			}
		}
		if err := c.deletePod(ctx, s, p); err != nil {
			return err
		}
		if !s.parallel() {
			return nil
		}
	}
	return c.rollUpdate(ctx, s)
}

// rollUpdate deletes the highest pod of an old revision, once those above it are healthy again.
func (c *statefulSets) rollUpdate(ctx context.Context, s *setRun) error {
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	for i := len(s.replicas) - 1; i >= 0; i-- {
		p := s.replicas[i]
		if i < s.partition() {
			return nil
		}
		if p == nil {
			return nil
		}
		if podRevision(p) != s.update.Name && p.DeletionTimestamp == nil {
			return c.deletePod(ctx, s, p)
		}
		if !healthy(p) {
			return nil
		}
		if ok, _ := podAvailable(p, s.Spec.MinReadySeconds, time.Now()); !ok {
			return nil
		}
	}
	return nil
}

func (c *statefulSets) deletePod(ctx context.Context, s *setRun, p *corev1.Pod) error {
	if now, ok := c.lister.Get(p.Namespace, p.Name); !ok || now.UID != p.UID || now.DeletionTimestamp != nil {
		return nil // done already, only not seen yet
	}
	err := c.pods.Delete(ctx, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.Events.Eventf(s.StatefulSet, corev1.EventTypeWarning, "FailedDelete", "delete Pod %s in StatefulSet %s failed error: %v", p.Name, s.Name, err)
		return err
	}
	c.Events.Eventf(s.StatefulSet, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", p.Name, s.Name)
	return nil
}

func (c *statefulSets) createPod(ctx context.Context, s *setRun, ordinal int) error {
	if err := c.ensureClaims(ctx, s, ordinal, true); err != nil {
		return err
	}
	revision := s.wantedRevision(ordinal)
	template, err := templateOf(revision)
	if err != nil {
		return err
	}
	pod := podFromTemplate(template, s.StatefulSet, c.access.Kind().GroupVersionKind)
	pod.GenerateName = ""
	pod.Name = fmt.Sprintf("%s-%d", s.Name, ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision.Name
	s.identify(pod, ordinal)
	_, err = c.pods.Create(ctx, pod)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // not seen yet, or another's: the next event tells
	case err != nil:
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Events.Eventf(s.StatefulSet, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", pod.Name, s.Name, err)
		}
		return err
	}
	c.Events.Eventf(s.StatefulSet, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", pod.Name, s.Name)
	return nil
}

// identify gives a pod its host name, labels and volumes.
func (s *setRun) identify(pod *corev1.Pod, ordinal int) {
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.Spec.ServiceName
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
	for _, t := range s.Spec.VolumeClaimTemplates {
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == t.Name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.claimName(t.Name, ordinal)},
		}})
	}
}

// ensureIdentity repairs labels that somebody took off a pod.
func (c *statefulSets) ensureIdentity(ctx context.Context, s *setRun, p *corev1.Pod, ordinal int) error {
	want := map[string]string{appsv1.StatefulSetPodNameLabel: p.Name, appsv1.PodIndexLabel: strconv.Itoa(ordinal)}
	for k, v := range want {
		if p.Labels[k] != v {
			data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "labels": want}})
			if err != nil {
				return err
			}
			_, err = c.pods.Patch(ctx, p.Namespace, p.Name, "", types.MergePatchType, data)
			return ignoreGone(err)
		}
	}
	return nil
}

func (c *statefulSets) updateStatus(ctx context.Context, s *setRun) (time.Duration, error) {
	st := appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, CollisionCount: &s.collisions, Conditions: s.Status.Conditions}
	if s.update == nil {
		st.CurrentRevision, st.UpdateRevision = s.Status.CurrentRevision, s.Status.UpdateRevision
	} else {
		st.CurrentRevision, st.UpdateRevision = s.current.Name, s.update.Name
	}
	var wait time.Duration
	for _, p := range s.pods {
		if podEnded(p) {
			continue
		}
		st.Replicas++
		if healthy(p) || p.Status.Phase == corev1.PodRunning && podReady(p) {
			st.ReadyReplicas++
			ok, left := podAvailable(p, s.Spec.MinReadySeconds, time.Now())
			if ok {
				st.AvailableReplicas++
			}
			wait = soonest(wait, left)
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if podRevision(p) == st.CurrentRevision {
			st.CurrentReplicas++
		}
		if podRevision(p) == st.UpdateRevision {
			st.UpdatedReplicas++
		}
	}
	// The roll-out is complete: the new revision becomes the current one.
	if s.update != nil && s.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		st.UpdatedReplicas == st.Replicas && st.ReadyReplicas == st.Replicas && st.Replicas == ptr.Deref(s.Spec.Replicas, 1) {
		st.CurrentReplicas, st.CurrentRevision = st.UpdatedReplicas, st.UpdateRevision
	}
	if equality.Semantic.DeepEqual(st, s.Status) {
		return wait, nil
	}
	next := s.StatefulSet.DeepCopy()
	next.Status = st
	if _, err := c.access.UpdateStatus(ctx, next); err != nil {
		if apierrors.IsConflict(err) {
			return 10 * time.Millisecond, nil
		}
		return 0, ignoreGone(err)
	}
	return wait, nil
}
