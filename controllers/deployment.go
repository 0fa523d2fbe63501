package controllers

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// Annotations by which kubectl rollout finds its way.
const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	desiredAnnotation         = "deployment.kubernetes.io/desired-replicas"
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas"
)

// deployments rolls ReplicaSets out and back.
type deployments struct {
	Deps
	queue   *queue.Queue[string]
	access  client.Resource[*appsv1.Deployment]
	sets    client.Resource[*appsv1.ReplicaSet]
	lister  client.TypedLister[*appsv1.Deployment]
	byOwner *client.Index[*appsv1.ReplicaSet]
	pods    *client.Index[*corev1.Pod] // by controller UID

	setLister client.TypedLister[*appsv1.ReplicaSet]
}

func newDeployments(d Deps) Controller {
	return &deployments{
		Deps: d, queue: queue.New[string](), access: client.For[*appsv1.Deployment](d.Client), sets: client.For[*appsv1.ReplicaSet](d.Client),
		byOwner: client.NewIndex(func(rs *appsv1.ReplicaSet) []string {
			if ref := metav1.GetControllerOfNoCopy(rs); ref != nil {
				return []string{string(ref.UID)}
			}
			return []string{orphansOf(rs.Namespace)}
		}),
		pods: podsByOwner("ReplicaSet"),
	}
}

func (c *deployments) Run(ctx context.Context) error {
	c.lister, c.setLister = c.access.Lister(ctx), c.sets.Lister(ctx)
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		c.pods.Apply(e)
		switch obj := e.Object().(type) {
		case *appsv1.Deployment:
			c.queue.Add(obj.Namespace + "/" + obj.Name)
		case *appsv1.ReplicaSet:
			if key, ok := ownerKey(obj, "Deployment"); ok {
				c.queue.Add(key)
				return
			}
			for d := range c.lister.All(obj.Namespace) {
				if selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && selector.Matches(labels.Set(obj.Labels)) {
					c.queue.Add(d.Namespace + "/" + d.Name)
				}
			}
		case *corev1.Pod:
			// A Recreate roll-out waits for the last old pod to be gone.
			if key, ok := c.recreating(obj); ok && e.New == nil {
				c.queue.Add(key)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note, c.access.Scope(), c.sets.Scope(), client.For[*corev1.Pod](c.Client).Scope())
}

// recreating returns the key of the Recreate Deployment that a pod belongs to.
func (c *deployments) recreating(p *corev1.Pod) (string, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return "", false
	}
	rs, ok := c.setLister.Get(p.Namespace, ref.Name)
	if !ok {
		return "", false
	}
	key, ok := ownerKey(rs, "Deployment")
	if !ok {
		return "", false
	}
	d, ok := c.lister.Get(splitKey(key))
	return key, ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
}

// rollout is one step's view of a Deployment.
type rollout struct {
	*appsv1.Deployment // a private copy
	kept               *appsv1.Deployment
	all, old           []*appsv1.ReplicaSet
	current            *appsv1.ReplicaSet // nil until made
}

func (c *deployments) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	kept, ok := c.lister.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	d := kept.DeepCopy()
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || selector.Empty() {
		c.Events.Event(kept, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		return 0, nil
	}
	all, err := c.claim(ctx, d, selector)
	if err != nil {
		return 0, err
	}
	r := &rollout{Deployment: d, kept: kept, all: all}
	r.sort()
	switch {
	case d.DeletionTimestamp != nil:
		return c.status(ctx, r)
	case d.Spec.Paused:
		c.pausedCondition(r)
		if err := c.ensureRevision(ctx, r, false); err != nil {
			return 0, conflictSoon(err)
		}
		if err := c.scale(ctx, r); err != nil {
			return 0, conflictSoon(err)
		}
		if err := c.cleanup(ctx, r); err != nil {
			return 0, err
		}
		return c.status(ctx, r)
	case r.scaled():
		c.pausedCondition(r)
		if err := c.ensureRevision(ctx, r, false); err != nil {
			return 0, conflictSoon(err)
		}
		if err := c.scale(ctx, r); err != nil {
			return 0, conflictSoon(err)
		}
		return c.status(ctx, r)
	}
	c.pausedCondition(r)
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		err = c.recreate(ctx, r)
	} else {
		err = c.rolling(ctx, r)
	}
	if err != nil {
		return 0, conflictSoon(err)
	}
	return c.status(ctx, r)
}

// conflictSoon leaves a lost race to the event that the winner's write brings, after which the queue retries.
func conflictSoon(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// claim returns the ReplicaSets of d; matching orphans are adopted, others released.
func (c *deployments) claim(ctx context.Context, d *appsv1.Deployment, selector labels.Selector) ([]*appsv1.ReplicaSet, error) {
	var mine []*appsv1.ReplicaSet
	for _, rs := range slices.Collect(c.byOwner.Lookup(string(d.UID))) {
		if selector.Matches(labels.Set(rs.Labels)) {
			mine = append(mine, rs)
			continue
		}
		refs := slices.DeleteFunc(slices.Clone(rs.OwnerReferences), func(r metav1.OwnerReference) bool { return r.UID == d.UID })
		if _, err := patchOwners(ctx, c.Client, c.sets.Kind(), rs, refs); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	if d.DeletionTimestamp != nil {
		return mine, nil
	}
	for _, rs := range slices.Collect(c.byOwner.Lookup(orphansOf(d.Namespace))) {
		if !selector.Matches(labels.Set(rs.Labels)) || rs.DeletionTimestamp != nil {
			continue
		}
		refs := append(slices.Clone(rs.OwnerReferences), *metav1.NewControllerRef(d, c.access.Kind().GroupVersionKind))
		adopted, err := patchOwners(ctx, c.Client, c.sets.Kind(), rs, refs)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		mine = append(mine, adopted.(*appsv1.ReplicaSet))
	}
	return mine, nil
}

// sort finds the ReplicaSet of the present template among all, oldest first; the rest is old.
func (r *rollout) sort() {
	slices.SortFunc(r.all, func(a, b *appsv1.ReplicaSet) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	r.current, r.old = nil, nil
	for _, rs := range r.all {
		if r.current == nil && sameTemplate(&rs.Spec.Template, &r.Spec.Template) {
			r.current = rs
		} else {
			r.old = append(r.old, rs)
		}
	}
}

// sameTemplate compares templates but for the hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := a.DeepCopy(), b.DeepCopy()
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(x, y)
}

func wanted(rs *appsv1.ReplicaSet) int32 {
	if rs == nil {
		return 0
	}
	return ptr.Deref(rs.Spec.Replicas, 1)
}

func totalWanted(sets []*appsv1.ReplicaSet) int32 {
	n := int32(0)
	for _, rs := range sets {
		n += wanted(rs)
	}
	return n
}

func sumStatus(sets []*appsv1.ReplicaSet, of func(appsv1.ReplicaSetStatus) int32) int32 {
	n := int32(0)
	for _, rs := range sets {
		if rs != nil {
			n += of(rs.Status)
		}
	}
	return n
}

// active are the ReplicaSets that have or want pods.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(rs *appsv1.ReplicaSet) bool { return wanted(rs) == 0 })
}

// templateHash names a template; collisions makes another name when it is taken by another template.
func templateHash(t *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprint(h, dump.ForHash(t))
	if collisions != nil {
		fmt.Fprint(h, *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

func revision(obj metav1.Object) int64 {
	n, err := strconv.ParseInt(obj.GetAnnotations()[revisionAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// pausedCondition keeps the Progressing condition in step with spec.paused, so that no deadline runs meanwhile.
func (c *deployments) pausedCondition(r *rollout) {
	cond := deploymentCondition(&r.Status, appsv1.DeploymentProgressing)
	if r.Spec.ProgressDeadlineSeconds == nil || cond != nil && cond.Reason == "ProgressDeadlineExceeded" {
		return
	}
	paused := cond != nil && cond.Reason == "DeploymentPaused"
	switch {
	case r.Spec.Paused && !paused:
		setDeploymentCondition(&r.Status, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused")
	case !r.Spec.Paused && paused:
		setDeploymentCondition(&r.Status, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}
}

func deploymentCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setDeploymentCondition replaces a condition; the same status and reason change nothing.
func setDeploymentCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	now := metav1.Now()
	next := appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
	old := deploymentCondition(s, kind)
	if old == nil {
		s.Conditions = append(s.Conditions, next)
		return
	}
	if old.Status == status && old.Reason == reason {
		return
	}
	if old.Status == status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	// The changed condition goes last, as users know it.
	s.Conditions = append(slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind }), next)
}

func removeDeploymentCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
