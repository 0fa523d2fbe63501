package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	intstrutil "k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// fences returns the surge and the unavailability that the strategy allows, in pods.
func fences(d *appsv1.Deployment) (surge, unavailable int32) {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	n := int(*d.Spec.Replicas)
	s, err := intstrutil.GetScaledValueFromIntOrPercent(intstrutil.ValueOrDefault(d.Spec.Strategy.RollingUpdate.MaxSurge, intstrutil.FromInt32(0)), n, true)
	if err != nil {
		s = 0
	}
	u, err := intstrutil.GetScaledValueFromIntOrPercent(intstrutil.ValueOrDefault(d.Spec.Strategy.RollingUpdate.MaxUnavailable, intstrutil.FromInt32(0)), n, false)
	if err != nil {
		u = 0
	}
	if s == 0 && u == 0 {
		u = 1 // both can only be nothing by rounding; the roll-out must go on
	}
	return int32(s), min(int32(u), *d.Spec.Replicas)
}

// ensureRevision numbers the ReplicaSet of the present template, and makes it when create is set and it is missing.
func (c *deployments) ensureRevision(ctx context.Context, r *rollout, create bool) error {
	highest := int64(0)
	for _, rs := range r.old {
		highest = max(highest, revision(rs))
	}
	number := highest + 1
	if r.current != nil {
		next := r.current.DeepCopy()
		changed := setRevision(next, r.Deployment, number)
		if next.Spec.MinReadySeconds != r.Spec.MinReadySeconds {
			next.Spec.MinReadySeconds = r.Spec.MinReadySeconds
			changed = true
		}
		if changed {
			updated, err := c.sets.Update(ctx, next)
			if err != nil {
				return err
			}
			r.replace(updated)
		}
		number = max(number, revision(r.current))
		if err := c.numberDeployment(ctx, r, revision(r.current)); err != nil {
			return err
		}
		if deploymentCondition(&r.Status, appsv1.DeploymentProgressing) == nil && r.Spec.ProgressDeadlineSeconds != nil {
			setDeploymentCondition(&r.Status, appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", r.current.Name))
		}
		return nil
	}
	if !create {
		return nil
	}
	hash := templateHash(&r.Spec.Template, r.Status.CollisionCount)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.Name + "-" + hash, Namespace: r.Namespace, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.kept, c.access.Kind().GroupVersionKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To(r.newReplicas(nil)), MinReadySeconds: r.Spec.MinReadySeconds,
			Selector: r.Spec.Selector.DeepCopy(), Template: *setTemplateLabel(&r.Spec.Template, appsv1.DefaultDeploymentUniqueLabelKey, hash),
		},
	}
	rs.Labels = rs.Spec.Template.Labels
	if rs.Spec.Selector.MatchLabels == nil {
		rs.Spec.Selector.MatchLabels = map[string]string{}
	}
	rs.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	setRevision(rs, r.Deployment, number)
	c.annotateScale(rs, r)
	made, err := c.sets.Create(ctx, rs)
	switch {
	case apierrors.IsAlreadyExists(err):
		present, getErr := c.sets.Get(ctx, rs.Namespace, rs.Name)
		if getErr != nil {
			return getErr
		}
		if ref := metav1.GetControllerOf(present); ref != nil && ref.UID == r.UID && sameTemplate(&present.Spec.Template, &r.Spec.Template) {
			made = present // it had not been seen yet
			break
		}
		// Another template has the name: count the collision and take another name.
		next := r.kept.DeepCopy()
		next.Status.CollisionCount = ptr.To(ptr.Deref(next.Status.CollisionCount, 0) + 1)
		if _, err := c.access.UpdateStatus(ctx, next); err != nil {
			return err
		}
		return fmt.Errorf("replica set name %s is taken", rs.Name)
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
		if r.Spec.ProgressDeadlineSeconds != nil {
			setDeploymentCondition(&r.Status, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", message)
			if _, statusErr := c.status(ctx, r); statusErr != nil {
				err = errors.Join(err, statusErr)
			}
		}
		c.Events.Event(r.kept, corev1.EventTypeWarning, "ReplicaSetCreateError", message)
		return err
	default:
		if n := wanted(made); n > 0 {
			c.Events.Eventf(r.kept, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s to %d", made.Name, n)
		}
	}
	r.all = append(r.all, made)
	r.current = made
	if err := c.numberDeployment(ctx, r, number); err != nil {
		return err
	}
	if r.Spec.ProgressDeadlineSeconds != nil {
		setDeploymentCondition(&r.Status, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", made.Name))
	}
	return nil
}

// numberDeployment writes the revision into the Deployment's annotations.
func (c *deployments) numberDeployment(ctx context.Context, r *rollout, number int64) error {
	if revision(r.Deployment) == number {
		return nil
	}
	next := r.kept.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[revisionAnnotation] = strconv.FormatInt(number, 10)
	updated, err := c.access.Update(ctx, next)
	if err != nil {
		return err
	}
	status := r.Status
	r.kept, r.Deployment = updated, updated.DeepCopy()
	r.Deployment.Status = status
	return nil
}

// setRevision numbers a ReplicaSet and copies the Deployment's annotations to it.
func setRevision(rs *appsv1.ReplicaSet, d *appsv1.Deployment, number int64) (changed bool) {
	before := maps.Clone(rs.Annotations)
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	for k, v := range d.Annotations {
		switch k {
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, revisionHistoryAnnotation, desiredAnnotation, maxReplicasAnnotation, appsv1.DeprecatedRollbackTo:
		default:
			rs.Annotations[k] = v
		}
	}
	if old := revision(rs); old < number {
		if old > 0 {
			history := strings.Split(rs.Annotations[revisionHistoryAnnotation], ",")
			history = append(slices.DeleteFunc(history, func(s string) bool { return s == "" }), strconv.FormatInt(old, 10))
			rs.Annotations[revisionHistoryAnnotation] = strings.Join(history, ",")
		}
		rs.Annotations[revisionAnnotation] = strconv.FormatInt(number, 10)
	}
	return !maps.Equal(before, rs.Annotations)
}

func (r *rollout) replace(updated *appsv1.ReplicaSet) {
	swap := func(list []*appsv1.ReplicaSet) {
		for i, rs := range list {
			if rs.UID == updated.UID {
				list[i] = updated
			}
		}
	}
	swap(r.all)
	swap(r.old)
	if r.current != nil && r.current.UID == updated.UID {
		r.current = updated
	}
}

// newReplicas is how many pods the ReplicaSet of the present template may have now.
func (r *rollout) newReplicas(current *appsv1.ReplicaSet) int32 {
	if r.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return *r.Spec.Replicas
	}
	surge, _ := fences(r.Deployment)
	total := totalWanted(r.all)
	most := *r.Spec.Replicas + surge
	if total >= most {
		return wanted(current)
	}
	return wanted(current) + min(most-total, *r.Spec.Replicas-wanted(current))
}

// annotateScale notes for proportional scaling how many pods there were to be.
func (c *deployments) annotateScale(rs *appsv1.ReplicaSet, r *rollout) bool {
	surge, _ := fences(r.Deployment)
	desired, most := strconv.Itoa(int(*r.Spec.Replicas)), strconv.Itoa(int(*r.Spec.Replicas+surge))
	if rs.Annotations[desiredAnnotation] == desired && rs.Annotations[maxReplicasAnnotation] == most {
		return false
	}
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	rs.Annotations[desiredAnnotation], rs.Annotations[maxReplicasAnnotation] = desired, most
	return true
}

// setSize scales a ReplicaSet and records it.
func (c *deployments) setSize(ctx context.Context, r *rollout, rs *appsv1.ReplicaSet, n int32) error {
	old := wanted(rs)
	next := rs.DeepCopy()
	if !c.annotateScale(next, r) && old == n {
		return nil
	}
	next.Spec.Replicas = &n
	updated, err := c.sets.Update(ctx, next)
	if err != nil {
		return err
	}
	r.replace(updated)
	if old != n {
		direction := "up"
		if old > n {
			direction = "down"
		}
		c.Events.Eventf(r.kept, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s to %d from %d", direction, rs.Name, n, old)
	}
	return nil
}

// rolling makes one step of a rolling update: first up, then down.
func (c *deployments) rolling(ctx context.Context, r *rollout) error {
	if err := c.ensureRevision(ctx, r, true); err != nil {
		return err
	}
	if wanted(r.current) != *r.Spec.Replicas {
		n := r.newReplicas(r.current)
		if wanted(r.current) > *r.Spec.Replicas {
			n = *r.Spec.Replicas
		}
		if n != wanted(r.current) {
			return c.setSize(ctx, r, r.current, n)
		}
	}
	done, err := c.shrinkOld(ctx, r)
	if err != nil || done {
		return err
	}
	return c.cleanup(ctx, r)
}

// shrinkOld takes pods from the old ReplicaSets, unhealthy ones first, as far as availability allows.
func (c *deployments) shrinkOld(ctx context.Context, r *rollout) (bool, error) {
	old := active(r.old)
	if totalWanted(old) == 0 {
		return false, nil
	}
	_, unavailable := fences(r.Deployment)
	least := *r.Spec.Replicas - unavailable
	newUnavailable := wanted(r.current) - r.current.Status.AvailableReplicas
	spare := totalWanted(r.all) - least - newUnavailable
	if spare <= 0 {
		return false, nil
	}
	did := false
	// Pods that never became ready hold the roll-out up without serving anybody.
	for _, rs := range slices.Clone(old) {
		sick := wanted(rs) - rs.Status.AvailableReplicas
		if sick <= 0 || spare <= 0 {
			continue
		}
		n := min(sick, spare)
		if err := c.setSize(ctx, r, rs, wanted(rs)-n); err != nil {
			return did, err
		}
		spare -= n
		did = true
	}
	old = active(r.old)
	available := sumStatus(r.all, func(s appsv1.ReplicaSetStatus) int32 { return s.AvailableReplicas })
	room := available - least
	for _, rs := range old {
		if room <= 0 {
			break
		}
		n := min(room, wanted(rs))
		if n == 0 {
			continue
		}
		if err := c.setSize(ctx, r, rs, wanted(rs)-n); err != nil {
			return did, err
		}
		room -= n
		did = true
	}
	return did, nil
}

// recreate ends all old pods before it starts new ones.
func (c *deployments) recreate(ctx context.Context, r *rollout) error {
	for _, rs := range active(r.old) {
		if err := c.setSize(ctx, r, rs, 0); err != nil {
			return err
		}
	}
	for _, rs := range r.old {
		for p := range c.pods.Lookup(string(rs.UID)) {
			if !podEnded(p) {
				return nil // its end brings the next step
			}
		}
	}
	if err := c.ensureRevision(ctx, r, true); err != nil {
		return err
	}
	if wanted(r.current) != *r.Spec.Replicas {
		return c.setSize(ctx, r, r.current, *r.Spec.Replicas)
	}
	return c.cleanup(ctx, r)
}

// scaled reports whether the Deployment was scaled while a roll-out was under way.
func (r *rollout) scaled() bool {
	for _, rs := range active(r.all) {
		if desired := rs.Annotations[desiredAnnotation]; desired != "" && desired != strconv.Itoa(int(*r.Spec.Replicas)) {
			return true
		}
	}
	return false
}

// scale spreads a changed size over the ReplicaSets in proportion to what they have.
func (c *deployments) scale(ctx context.Context, r *rollout) error {
	alive := active(r.all)
	if len(alive) == 0 && r.current != nil || len(alive) == 1 {
		only := r.current
		if len(alive) == 1 {
			only = alive[0]
		}
		return c.setSize(ctx, r, only, *r.Spec.Replicas)
	}
	if r.current != nil && wanted(r.current) == *r.Spec.Replicas && r.current.Status.AvailableReplicas == *r.Spec.Replicas {
		for _, rs := range active(r.old) {
			if err := c.setSize(ctx, r, rs, 0); err != nil {
				return err
			}
		}
		return nil
	}
	if r.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType || len(alive) == 0 {
		return nil
	}
	surge, _ := fences(r.Deployment)
	allowed := int32(0)
	if *r.Spec.Replicas > 0 {
		allowed = *r.Spec.Replicas + surge
	}
	total := totalWanted(alive)
	add := allowed - total
	// The biggest take the change first; of equals the newest when growing, the oldest when shrinking.
	slices.SortStableFunc(alive, func(a, b *appsv1.ReplicaSet) int {
		age := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(wanted(b), wanted(a)), age)
	})
	sizes := make([]int32, len(alive))
	given := int32(0)
	for i, rs := range alive {
		sizes[i] = wanted(rs)
		if add == 0 {
			continue
		}
		share := proportion(rs, r.Deployment, allowed)
		if add > 0 {
			share = min(max(share, 0), add-given)
		} else {
			share = max(min(share, 0), add-given)
		}
		sizes[i] += share
		given += share
	}
	sizes[0] = max(0, sizes[0]+add-given)
	for i, rs := range alive {
		if err := c.setSize(ctx, r, rs, max(0, sizes[i])); err != nil {
			return err
		}
	}
	return nil
}

// proportion is by how much a ReplicaSet changes when the whole may have allowed pods.
func proportion(rs *appsv1.ReplicaSet, d *appsv1.Deployment, allowed int32) int32 {
	if *d.Spec.Replicas == 0 {
		return -wanted(rs)
	}
	before := d.Status.Replicas
	if n, err := strconv.Atoi(rs.Annotations[maxReplicasAnnotation]); err == nil && n > 0 {
		before = int32(n)
	}
	if before == 0 {
		return 0
	}
	scaled := float64(wanted(rs)) * float64(allowed) / float64(before)
	return int32(scaled+0.5) - wanted(rs)
}

// cleanup removes old ReplicaSets beyond the history limit, once the roll-out is complete.
func (c *deployments) cleanup(ctx context.Context, r *rollout) error {
	if r.Spec.RevisionHistoryLimit == nil || !r.complete() {
		return nil
	}
	old := slices.Clone(r.old)
	slices.SortFunc(old, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revision(a), revision(b)) })
	for _, rs := range old[:max(0, len(old)-int(*r.Spec.RevisionHistoryLimit))] {
		if wanted(rs) != 0 || rs.Status.Replicas != 0 || rs.Generation > rs.Status.ObservedGeneration || rs.DeletionTimestamp != nil {
			continue
		}
		if err := c.sets.Delete(ctx, rs.Namespace, rs.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
