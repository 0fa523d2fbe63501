package controllers

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newStatus counts what the ReplicaSets report.
func (r *rollout) newStatus() appsv1.DeploymentStatus {
	s := *r.Status.DeepCopy()
	available := sumStatus(r.all, func(s appsv1.ReplicaSetStatus) int32 { return s.AvailableReplicas })
	total := sumStatus(r.all, func(s appsv1.ReplicaSetStatus) int32 { return s.Replicas })
	s.ObservedGeneration = r.Generation
	s.Replicas = total
	s.ReadyReplicas = sumStatus(r.all, func(s appsv1.ReplicaSetStatus) int32 { return s.ReadyReplicas })
	s.AvailableReplicas = available
	s.UnavailableReplicas = max(0, totalWanted(r.all)-available)
	s.UpdatedReplicas = 0
	if r.current != nil {
		s.UpdatedReplicas = r.current.Status.Replicas
	}
	_, unavailable := fences(r.Deployment)
	if available >= *r.Spec.Replicas-unavailable {
		setDeploymentCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.")
	} else {
		setDeploymentCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
	}
	return s
}

// complete reports whether the roll-out has arrived.
func (r *rollout) complete() bool {
	s := r.newStatus()
	return s.UpdatedReplicas == *r.Spec.Replicas && s.Replicas == *r.Spec.Replicas && s.AvailableReplicas == *r.Spec.Replicas &&
		r.current != nil && r.current.Status.ObservedGeneration >= r.current.Generation
}

// status writes what has become of the Deployment, and says when the progress deadline has to be looked at.
func (c *deployments) status(ctx context.Context, r *rollout) (time.Duration, error) {
	s := r.newStatus()
	var wait time.Duration
	cond := deploymentCondition(&s, appsv1.DeploymentProgressing)
	paused := r.Spec.Paused || cond != nil && cond.Reason == "DeploymentPaused"
	switch {
	case r.Spec.ProgressDeadlineSeconds == nil:
		removeDeploymentCondition(&s, appsv1.DeploymentProgressing)
	case paused:
	case s.Replicas == s.UpdatedReplicas && cond != nil && cond.Reason == "NewReplicaSetAvailable":
		// Arrived earlier; losing pods later is no roll-out.
	case r.complete():
		setProgress(&s, corev1.ConditionTrue, "NewReplicaSetAvailable", r.progressText("has successfully progressed."))
	case r.progressed(s):
		setProgress(&s, corev1.ConditionTrue, "ReplicaSetUpdated", r.progressText("is progressing."))
		wait = time.Duration(*r.Spec.ProgressDeadlineSeconds) * time.Second
	case cond != nil && cond.Reason != "ProgressDeadlineExceeded" && cond.Reason != "NewReplicaSetAvailable":
		// (After an earlier arrival the deadline runs from the first progress on.)
		left := time.Until(cond.LastUpdateTime.Add(time.Duration(*r.Spec.ProgressDeadlineSeconds) * time.Second))
		if left > 0 {
			wait = left + time.Second
			break
		}
		setProgress(&s, corev1.ConditionFalse, "ProgressDeadlineExceeded", r.progressText("has timed out progressing."))
	}
	r.failure(&s)
	if equality.Semantic.DeepEqual(s, r.kept.Status) {
		return wait, nil
	}
	next := r.kept.DeepCopy()
	next.Status = s
	if _, err := c.access.UpdateStatus(ctx, next); err != nil {
		if apierrors.IsConflict(err) {
			return 10 * time.Millisecond, nil
		}
		return 0, ignoreGone(err)
	}
	return wait, nil
}

// setProgress sets the Progressing condition and always renews its time: the deadline counts from the last progress.
func setProgress(s *appsv1.DeploymentStatus, status corev1.ConditionStatus, reason, message string) {
	old := deploymentCondition(s, appsv1.DeploymentProgressing)
	if old != nil && old.Status == status {
		old.Reason, old.Message, old.LastUpdateTime = reason, message, metav1.Now()
		return
	}
	setDeploymentCondition(s, appsv1.DeploymentProgressing, status, reason, message)
}

func (r *rollout) progressText(what string) string {
	if r.current != nil {
		return fmt.Sprintf("ReplicaSet %q %s", r.current.Name, what)
	}
	return fmt.Sprintf("Deployment %q %s", r.Name, what)
}

// progressed compares the counts with those of the last status.
func (r *rollout) progressed(s appsv1.DeploymentStatus) bool {
	old := r.kept.Status
	return s.UpdatedReplicas > old.UpdatedReplicas || s.Replicas-s.UpdatedReplicas < old.Replicas-old.UpdatedReplicas ||
		s.ReadyReplicas > old.ReadyReplicas || s.AvailableReplicas > old.AvailableReplicas
}

// failure passes on why a ReplicaSet cannot make its pods.
func (r *rollout) failure(s *appsv1.DeploymentStatus) {
	sets := r.old
	if r.current != nil {
		sets = append([]*appsv1.ReplicaSet{r.current}, r.old...)
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				setDeploymentCondition(s, appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message)
				return
			}
		}
	}
	removeDeploymentCondition(s, appsv1.DeploymentReplicaFailure)
}
