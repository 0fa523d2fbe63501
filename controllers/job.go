package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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

// Back-off between a pod's failure and its replacement.
const (
	jobBackoff    = 10 * time.Second
	jobMaxBackoff = 10 * time.Minute
)

// jobs runs pods to completion. A pod is counted once: a finalizer keeps it until its end is in the Job's status.
type jobs struct {
	*podControl
	queue  *queue.Queue[string]
	access client.Resource[*batchv1.Job]
	jobs   client.TypedLister[*batchv1.Job]
}

func newJobs(d Deps) Controller {
	return &jobs{podControl: newPodControl(d, "Job"), queue: queue.New[string](), access: client.For[*batchv1.Job](d.Client)}
}

func (c *jobs) Run(ctx context.Context) error {
	c.lister = c.pods.Lister(ctx)
	c.jobs = c.access.Lister(ctx)
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		if job, ok := e.Object().(*batchv1.Job); ok {
			c.noteJob(e, job)
			return
		}
		pod := e.Object().(*corev1.Pod)
		noteOwners(e, "Job", c.queue.Add, func(pod *corev1.Pod) {
			for j := range c.jobs.All(pod.Namespace) {
				if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
					c.queue.Add(j.Namespace + "/" + j.Name)
				}
			}
		})
		if e.New != nil && hasTracking(pod) && c.forsaken(pod) {
			c.queue.Add(forsakenKey(pod))
		}
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note, c.access.Scope(), c.pods.Scope())
}

func (c *jobs) noteJob(e client.Event, job *batchv1.Job) {
	if e.New != nil {
		c.queue.Add(job.Namespace + "/" + job.Name)
		return
	}
	c.seen.forget(job.UID)
	for p := range c.byOwner.Lookup(string(job.UID)) {
		if hasTracking(p) {
			c.queue.Add(forsakenKey(p))
		}
	}
}

// forsaken reports whether a pod has no Job that would ever take the finalizer off.
func (c *jobs) forsaken(p *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		return true
	}
	if ref.Kind != "Job" {
		return false
	}
	job, ok := c.jobs.Get(p.Namespace, ref.Name)
	return !ok || job.UID != ref.UID
}

// forsakenKey is the queue key of a single pod, which no Job's key can be.
func forsakenKey(p *corev1.Pod) string { return forsakenPrefix + p.Namespace + "/" + p.Name }

const forsakenPrefix = "forsaken:"

func hasTracking(p *corev1.Pod) bool {
	return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer)
}

// jobRun is one step's view of a Job.
type jobRun struct {
	*batchv1.Job // a private copy, whose status is changed
	pods         []*corev1.Pod
	active       []*corev1.Pod
	// ended pods that are not in the counts yet.
	fresh             []*corev1.Pod
	succeeded, failed int32 // counted and fresh
	succeededIndexes  intervals
	failedIndexes     intervals
	backoff           time.Duration
	policyFailure     string // message of a pod failure policy's FailJob
	policyIndexes     map[int]bool
	ignored           map[types.UID]bool
}

func (r *jobRun) indexed() bool {
	return r.Spec.CompletionMode != nil && *r.Spec.CompletionMode == batchv1.IndexedCompletion
}

func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func jobEnded(job *batchv1.Job) bool {
	return jobCondition(job, batchv1.JobComplete) != nil || jobCondition(job, batchv1.JobFailed) != nil
}

func (c *jobs) sync(ctx context.Context, key string) (time.Duration, error) {
	if rest, ok := strings.CutPrefix(key, forsakenPrefix); ok {
		if p, ok := c.lister.Get(splitKey(rest)); ok && c.forsaken(p) {
			return 0, c.untrack(ctx, p)
		}
		return 0, nil
	}
	namespace, name := splitKey(key)
	kept, ok := c.jobs.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	if kept.Spec.ManagedBy != nil && *kept.Spec.ManagedBy != batchv1.JobControllerName {
		return 0, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(kept.Spec.Selector)
	if err != nil {
		return 0, nil
	}
	settled := c.settled(kept)
	pods, err := c.claim(ctx, kept, c.access.Kind().GroupVersionKind, selector)
	if err != nil {
		return 0, err
	}
	r := &jobRun{Job: kept.DeepCopy(), pods: pods, policyIndexes: map[int]bool{}, ignored: map[types.UID]bool{}}
	if jobEnded(kept) {
		return 0, forEachPod(pods, func(p *corev1.Pod) error { return c.untrack(ctx, p) })
	}
	if r.Status.StartTime == nil && !ptr.Deref(r.Spec.Suspend, false) {
		r.Status.StartTime = ptr.To(metav1.Now())
	}
	r.count()
	wait := c.decide(r)
	var manageErr error
	if kept.DeletionTimestamp == nil && !jobEnded(r.Job) {
		later := settleTime
		if settled {
			later, manageErr = c.manage(ctx, r)
		}
		wait = soonest(wait, later)
	}
	if err := c.record(ctx, kept, r); err != nil {
		if apierrors.IsConflict(err) {
			return 10 * time.Millisecond, nil
		}
		return 0, errors.Join(manageErr, ignoreGone(err))
	}
	if apierrors.HasStatusCause(manageErr, corev1.NamespaceTerminatingCause) {
		manageErr = nil
	}
	return wait, manageErr
}

func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// count sorts the pods: active, and ended ones that the status does not hold yet.
func (r *jobRun) count() {
	s := &r.Status
	r.succeeded, r.failed = s.Succeeded, s.Failed
	r.succeededIndexes = parseIntervals(s.CompletedIndexes)
	r.failedIndexes = parseIntervals(ptr.Deref(s.FailedIndexes, ""))
	uncounted := map[types.UID]bool{}
	if u := s.UncountedTerminatedPods; u != nil {
		r.succeeded += int32(len(u.Succeeded))
		r.failed += int32(len(u.Failed))
		for _, uid := range slices.Concat(u.Succeeded, u.Failed) {
			uncounted[uid] = true
		}
	}
	for _, p := range r.pods {
		switch {
		case podActive(p):
			r.active = append(r.active, p)
		case !hasTracking(p) || uncounted[p.UID]:
		case podEnded(p) || r.lost(p):
			r.fresh = append(r.fresh, p)
		}
	}
	for _, p := range r.fresh {
		if p.Status.Phase == corev1.PodSucceeded {
			if r.indexed() {
				if i := podIndex(p); i >= 0 && i < int(*r.Spec.Completions) {
					r.succeededIndexes = r.succeededIndexes.add(i)
				}
				continue
			}
			r.succeeded++
			continue
		}
		r.applyFailurePolicy(p)
		if !r.ignored[p.UID] {
			r.failed++
		}
	}
	if r.indexed() {
		r.succeeded = int32(r.succeededIndexes.len())
		r.failIndexes()
	}
}

// lost reports whether a pod that is being deleted counts as failed already.
func (r *jobRun) lost(p *corev1.Pod) bool {
	if p.DeletionTimestamp == nil {
		return false
	}
	// With the policy Failed, or under a failure policy, a pod counts only once it has really ended.
	if r.Spec.PodFailurePolicy != nil || r.Spec.PodReplacementPolicy != nil && *r.Spec.PodReplacementPolicy == batchv1.Failed {
		return false
	}
	return true
}

// podIndex is the completion index of a pod, -1 without one.
func podIndex(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil {
		return -1
	}
	return n
}

// manage makes and deletes pods until as many run as may.
func (c *jobs) manage(ctx context.Context, r *jobRun) (time.Duration, error) {
	switch {
	case jobCondition(r.Job, batchv1.JobFailureTarget) != nil:
		// They keep the finalizer: what a failed Job takes down counts as failed.
		return 0, c.deleteAll(ctx, r.Job, r.active)
	case ptr.Deref(r.Spec.Suspend, false) || r.ending():
		return 0, c.withdraw(ctx, r, r.active)
	}
	parallelism := int(ptr.Deref(r.Spec.Parallelism, 1))
	want := parallelism
	if r.Spec.Completions != nil {
		want = min(parallelism, int(*r.Spec.Completions)-int(r.succeeded))
		if r.indexed() {
			want = min(parallelism, int(*r.Spec.Completions)-r.succeededIndexes.len()-r.failedIndexes.len())
		}
	} else if r.succeeded > 0 {
		want = min(parallelism, len(r.active)) // a work queue: the rest finish, none is added
	}
	var superfluous []*corev1.Pod
	running := r.active
	if r.indexed() {
		running, superfluous = r.perIndex()
	}
	if len(running) > want {
		list := slices.Clone(running)
		deletionOrder(list)
		superfluous = append(superfluous, list[:len(list)-max(0, want)]...)
	}
	if len(superfluous) > 0 {
		if err := c.withdraw(ctx, r, superfluous); err != nil {
			return 0, err
		}
	}
	missing := min(want-len(running), burst)
	if r.Spec.PodReplacementPolicy != nil && *r.Spec.PodReplacementPolicy == batchv1.Failed {
		for _, p := range r.pods {
			if p.DeletionTimestamp != nil && !podEnded(p) {
				missing--
			}
		}
	}
	if missing <= 0 {
		return 0, nil
	}
	if left := r.waitAfterFailure(); left > 0 {
		return left, nil
	}
	if r.indexed() {
		return c.createIndexed(ctx, r, missing)
	}
	_, err := slowStart(missing, func(int) error { return c.createPod(ctx, r, -1) })
	return 0, err
}

// waitAfterFailure is the rest of the back-off: it doubles with every pod that failed since the last success.
func (r *jobRun) waitAfterFailure() time.Duration {
	if r.Spec.BackoffLimitPerIndex != nil {
		return 0 // each index waits for itself
	}
	var last, success time.Time
	n := 0
	for _, p := range r.pods {
		if p.Status.Phase == corev1.PodSucceeded {
			if at := endTime(p); at.After(success) {
				success = at
			}
		}
	}
	for _, p := range r.pods {
		if p.Status.Phase == corev1.PodFailed && !r.ignored[p.UID] && endTime(p).After(success) {
			n++
			if at := endTime(p); at.After(last) {
				last = at
			}
		}
	}
	return backoffLeft(n, last)
}

func backoffLeft(failures int, last time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	d := jobMaxBackoff
	if failures < 8 {
		d = min(jobBackoff<<(failures-1), jobMaxBackoff)
	}
	return max(0, d-time.Since(last))
}

// endTime is when the last container of a pod ended.
func endTime(p *corev1.Pod) time.Time {
	var at time.Time
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	if at.IsZero() {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.LastTransitionTime.After(at) {
				at = c.LastTransitionTime.Time
			}
		}
	}
	if at.IsZero() {
		at = p.CreationTimestamp.Time
	}
	return at
}

func (c *jobs) createPod(ctx context.Context, r *jobRun, index int) error {
	kind := c.access.Kind().GroupVersionKind
	pod := podFromTemplate(&r.Spec.Template, r.Job, kind)
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if index >= 0 {
		r.indexPod(pod, index)
	}
	_, err := c.create(ctx, r.Job, pod)
	return err
}

// withdraw deletes pods that are not wanted any more, which count as neither succeeded nor failed.
func (c *jobs) withdraw(ctx context.Context, r *jobRun, pods []*corev1.Pod) error {
	return forEachPod(pods, func(p *corev1.Pod) error {
		if p.DeletionTimestamp != nil {
			return nil
		}
		if err := c.untrack(ctx, p); err != nil {
			return err
		}
		return c.delete(ctx, r.Job, p)
	})
}

// untrack takes the finalizer off a pod.
func (c *jobs) untrack(ctx context.Context, p *corev1.Pod) error {
	if now, ok := c.lister.Get(p.Namespace, p.Name); !ok || now.UID != p.UID || !hasTracking(now) {
		return nil
	}
	data := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, p.UID, batchv1.JobTrackingFinalizer)
	_, err := c.pods.Patch(ctx, p.Namespace, p.Name, "", types.StrategicMergePatchType, data)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// record writes the status in two steps that survive a crash between them: first the ended pods are listed as uncounted,
// then, once their finalizers are gone, they move into the counts.
func (c *jobs) record(ctx context.Context, kept *batchv1.Job, r *jobRun) error {
	s := &r.Status
	r.liveCounts(c)
	u := s.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
	}
	u = u.DeepCopy()
	c.cleared(u, r.pods)
	for _, p := range r.fresh {
		switch {
		case r.indexed() && p.Status.Phase == corev1.PodSucceeded, r.ignored[p.UID]:
			// Indexes are their own tally, ignored pods have none.
		case p.Status.Phase == corev1.PodSucceeded:
			u.Succeeded = append(u.Succeeded, p.UID)
		default:
			u.Failed = append(u.Failed, p.UID)
		}
	}
	s.Succeeded, s.Failed = r.succeeded-int32(len(u.Succeeded)), r.failed-int32(len(u.Failed))
	if r.indexed() {
		s.CompletedIndexes = r.succeededIndexes.String()
		s.Succeeded = int32(r.succeededIndexes.len())
		if r.Spec.BackoffLimitPerIndex != nil {
			s.FailedIndexes = ptr.To(r.failedIndexes.String())
		}
	}
	s.UncountedTerminatedPods = u
	ended := jobEnded(r.Job)
	if ended && len(u.Succeeded)+len(u.Failed) > 0 {
		// The end is only announced with all pods counted.
		r.Status.Conditions = slices.DeleteFunc(r.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed
		})
		s.CompletionTime, ended = nil, false
	}
	if !equality.Semantic.DeepEqual(kept.Status, *s) {
		next := kept.DeepCopy()
		next.Status = *s
		written, err := c.access.UpdateStatus(ctx, next)
		if err != nil {
			return err
		}
		if ended {
			c.announce(written)
		}
	}
	// The events of the finalizers' removal bring the next step.
	return forEachPod(r.pods, func(p *corev1.Pod) error {
		if podEnded(p) || ended || slices.Contains(u.Failed, p.UID) {
			return c.untrack(ctx, p)
		}
		return nil
	})
}

// cleared moves pods whose finalizer is gone from the uncounted lists into the counts.
func (c *jobs) cleared(u *batchv1.UncountedTerminatedPods, pods []*corev1.Pod) {
	tracked := map[types.UID]bool{}
	for _, p := range pods {
		if hasTracking(p) {
			tracked[p.UID] = true
		}
	}
	gone := func(uid types.UID) bool { return !tracked[uid] }
	u.Succeeded = slices.DeleteFunc(u.Succeeded, gone)
	u.Failed = slices.DeleteFunc(u.Failed, gone)
}

// liveCounts fills in what changes from moment to moment.
func (r *jobRun) liveCounts(c *jobs) {
	active, ready, terminating := int32(0), int32(0), int32(0)
	for p := range c.byOwner.Lookup(string(r.UID)) {
		switch {
		case podActive(p):
			active++
			if podReady(p) {
				ready++
			}
		case p.DeletionTimestamp != nil && !podEnded(p):
			terminating++
		}
	}
	if ended := jobEnded(r.Job); ended {
		active, ready = 0, 0
	}
	r.Status.Active, r.Status.Ready, r.Status.Terminating = active, &ready, &terminating
}

// announce records the end of a Job.
func (c *jobs) announce(job *batchv1.Job) {
	if cond := jobCondition(job, batchv1.JobFailed); cond != nil {
		c.Events.Event(job, corev1.EventTypeWarning, cond.Reason, cond.Message)
		return
	}
	c.Events.Event(job, corev1.EventTypeNormal, "Completed", "Job completed")
}
