package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
	"proa/internal/queue"
)

// replicas keeps the number of pods of ReplicaSets, and of ReplicationControllers, which only differ in their types.
type replicas[T api.Object] struct {
	*podControl
	kind   client.Resource[T]
	owners client.TypedLister[T]
	queue  *queue.Queue[string]
	read   func(T) replicaSpec
	// write returns a copy of the object with another status.
	write func(T, appsv1.ReplicaSetStatus) T
}

// replicaSpec is what both kinds ask for.
type replicaSpec struct {
	replicas int32
	minReady int32
	selector labels.Selector
	template *corev1.PodTemplateSpec
	status   appsv1.ReplicaSetStatus
}

func newReplicaSets(d Deps) Controller {
	return &replicas[*appsv1.ReplicaSet]{
		podControl: newPodControl(d, "ReplicaSet"), kind: client.For[*appsv1.ReplicaSet](d.Client), queue: queue.New[string](),
		read: func(rs *appsv1.ReplicaSet) replicaSpec {
			selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
			if err != nil {
				selector = labels.Nothing()
			}
			return replicaSpec{ptr.Deref(rs.Spec.Replicas, 1), rs.Spec.MinReadySeconds, selector, &rs.Spec.Template, rs.Status}
		},
		write: func(rs *appsv1.ReplicaSet, s appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
			next := rs.DeepCopy()
			next.Status = s
			return next
		},
	}
}

func newReplicationControllers(d Deps) Controller {
	return &replicas[*corev1.ReplicationController]{
		podControl: newPodControl(d, "ReplicationController"), kind: client.For[*corev1.ReplicationController](d.Client), queue: queue.New[string](),
		read: func(rc *corev1.ReplicationController) replicaSpec {
			s := rc.Status
			status := appsv1.ReplicaSetStatus{
				Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
				AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
			}
			for _, c := range s.Conditions {
				status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
					Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				})
			}
			template := rc.Spec.Template
			if template == nil {
				template = &corev1.PodTemplateSpec{}
			}
			return replicaSpec{ptr.Deref(rc.Spec.Replicas, 1), rc.Spec.MinReadySeconds, labels.SelectorFromSet(rc.Spec.Selector), template, status}
		},
		write: func(rc *corev1.ReplicationController, s appsv1.ReplicaSetStatus) *corev1.ReplicationController {
			next := rc.DeepCopy()
			next.Status = corev1.ReplicationControllerStatus{
				Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
				AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
			}
			for _, c := range s.Conditions {
				next.Status.Conditions = append(next.Status.Conditions, corev1.ReplicationControllerCondition{
					Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
				})
			}
			return next
		},
	}
}

func (c *replicas[T]) Run(ctx context.Context) error {
	c.owners = c.kind.Lister(ctx)
	c.lister = c.pods.Lister(ctx)
	kind := c.kind.Kind().Kind
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		if _, ok := e.Object().(*corev1.Pod); !ok {
			if e.New == nil {
				c.seen.forget(e.Old.GetUID())
				return
			}
			c.queue.Add(e.New.GetNamespace() + "/" + e.New.GetName())
			return
		}
		noteOwners(e, kind, c.queue.Add, func(pod *corev1.Pod) {
			for o := range c.owners.All(pod.Namespace) {
				if c.read(o).selector.Matches(labels.Set(pod.Labels)) {
					c.queue.Add(o.GetNamespace() + "/" + o.GetName())
				}
			}
		})
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note, c.kind.Scope(), c.pods.Scope())
}

func (c *replicas[T]) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	owner, ok := c.owners.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	spec := c.read(owner)
	kind := c.kind.Kind().GroupVersionKind
	settled := c.settled(owner)
	pods, err := c.claim(ctx, owner, kind, spec.selector)
	if err != nil {
		return 0, err
	}
	active := slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !podActive(p) })
	var manageErr error
	var again time.Duration
	if owner.GetDeletionTimestamp() == nil {
		if settled {
			manageErr = c.manage(ctx, owner, spec, active)
		} else {
			again = settleTime
		}
	}
	wait, err := c.updateStatus(ctx, owner, spec, active, manageErr)
	if manageErr != nil {
		if apierrors.HasStatusCause(manageErr, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		return 0, manageErr
	}
	return soonest(wait, again), err
}

// manage makes the missing pods or deletes those that are too many.
func (c *replicas[T]) manage(ctx context.Context, owner T, spec replicaSpec, active []*corev1.Pod) error {
	if missing := int(spec.replicas) - len(active); missing > 0 {
		kind := c.kind.Kind().GroupVersionKind
		_, err := slowStart(min(missing, burst), func(int) error {
			_, err := c.create(ctx, owner, podFromTemplate(spec.template, owner, kind))
			return err
		})
		return err
	}
	if extra := len(active) - int(spec.replicas); extra > 0 {
		deletionOrder(active)
		return c.deleteAll(ctx, owner, active[:min(extra, burst)])
	}
	return nil
}

func (c *replicas[T]) updateStatus(ctx context.Context, owner T, spec replicaSpec, active []*corev1.Pod, failure error) (time.Duration, error) {
	s := appsv1.ReplicaSetStatus{Replicas: int32(len(active)), ObservedGeneration: owner.GetGeneration(), Conditions: slices.Clone(spec.status.Conditions)}
	template := labels.SelectorFromValidatedSet(spec.template.Labels)
	now := time.Now()
	var wait time.Duration
	for _, p := range active {
		if template.Matches(labels.Set(p.Labels)) {
			s.FullyLabeledReplicas++
		}
		if podReady(p) {
			s.ReadyReplicas++
		}
		available, left := podAvailable(p, spec.minReady, now)
		if available {
			s.AvailableReplicas++
		} else if left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
	}
	failed := slices.IndexFunc(s.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	switch {
	case failure != nil && failed < 0:
		reason := "FailedCreate"
		if len(active) > int(spec.replicas) {
			reason = "FailedDelete"
		}
		s.Conditions = append(s.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, Message: failure.Error(), LastTransitionTime: metav1.Now(),
		})
	case failure == nil && failed >= 0:
		s.Conditions = slices.Delete(s.Conditions, failed, failed+1)
	}
	if equality.Semantic.DeepEqual(s, spec.status) {
		return wait, nil
	}
	if _, err := c.kind.UpdateStatus(ctx, c.write(owner, s)); err != nil {
		if apierrors.IsConflict(err) {
			// The next event brings the newer version.
			return time.Millisecond * 10, nil
		}
		return 0, ignoreGone(fmt.Errorf("update status: %w", err))
	}
	return wait, nil
}
