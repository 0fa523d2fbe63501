package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// manyMissed is how many missed start times are counted one by one.
const manyMissed = 10000

// cronJobs starts Jobs by the clock. It wakes exactly when the next one is due.
type cronJobs struct {
	Deps
	queue  *queue.Queue[string]
	access client.Resource[*batchv1.CronJob]
	lister client.TypedLister[*batchv1.CronJob]
	jobs   client.Resource[*batchv1.Job]
	// byOwner finds Jobs by the UID of their CronJob.
	byOwner *client.Index[*batchv1.Job]
}

func newCronJobs(d Deps) Controller {
	return &cronJobs{
		Deps: d, queue: queue.New[string](), access: client.For[*batchv1.CronJob](d.Client), jobs: client.For[*batchv1.Job](d.Client),
		byOwner: client.NewIndex(func(j *batchv1.Job) []string {
			if ref := metav1.GetControllerOfNoCopy(j); ref != nil && ref.Kind == "CronJob" {
				return []string{string(ref.UID)}
			}
			return nil
		}),
	}
}

func (c *cronJobs) Run(ctx context.Context) error {
	c.lister = c.access.Lister(ctx)
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		if cj, ok := e.Object().(*batchv1.CronJob); ok {
			if e.New != nil {
				c.queue.Add(cj.Namespace + "/" + cj.Name)
			}
			return
		}
		if key, ok := ownerKey(e.Object(), "CronJob"); ok {
			c.queue.Add(key)
		}
	}
	return loop(ctx, c.Deps, c.queue, 2, c.sync, note, c.access.Scope(), c.jobs.Scope())
}

func (c *cronJobs) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	kept, ok := c.lister.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	cj := kept.DeepCopy()
	mine := slices.Collect(c.byOwner.Lookup(string(cj.UID)))
	if err := c.trim(ctx, cj, mine); err != nil {
		return 0, err
	}
	c.follow(ctx, cj, mine)
	wait, err := c.start(ctx, cj, mine)
	if !equality.Semantic.DeepEqual(cj.Status, kept.Status) {
		if _, statusErr := c.access.UpdateStatus(ctx, cj); statusErr != nil && err == nil {
			if apierrors.IsConflict(statusErr) {
				return 10 * time.Millisecond, nil
			}
			err = ignoreGone(statusErr)
		}
	}
	return wait, err
}

// trim removes finished Jobs beyond the history limits, oldest first.
func (c *cronJobs) trim(ctx context.Context, cj *batchv1.CronJob, mine []*batchv1.Job) error {
	for kind, limit := range map[batchv1.JobConditionType]*int32{batchv1.JobComplete: cj.Spec.SuccessfulJobsHistoryLimit, batchv1.JobFailed: cj.Spec.FailedJobsHistoryLimit} {
		if limit == nil {
			continue
		}
		var ended []*batchv1.Job
		for _, j := range mine {
			if jobCondition(j, kind) != nil {
				ended = append(ended, j)
			}
		}
		slices.SortFunc(ended, func(a, b *batchv1.Job) int {
			return cmp.Or(ptr.Deref(a.Status.StartTime, a.CreationTimestamp).Time.Compare(ptr.Deref(b.Status.StartTime, b.CreationTimestamp).Time), cmp.Compare(a.Name, b.Name))
		})
		for _, j := range ended[:max(0, len(ended)-int(*limit))] {
			if j.DeletionTimestamp != nil {
				continue
			}
			if err := c.remove(ctx, cj, j); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *cronJobs) remove(ctx context.Context, cj *batchv1.CronJob, j *batchv1.Job) error {
	err := c.jobs.Delete(ctx, j.Namespace, j.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.Events.Eventf(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		return err
	}
	c.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", j.Name)
	return nil
}

// follow keeps the list of active Jobs and the time of the last success.
func (c *cronJobs) follow(ctx context.Context, cj *batchv1.CronJob, mine []*batchv1.Job) {
	listed := func(j *batchv1.Job) int {
		return slices.IndexFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == j.UID })
	}
	for _, j := range mine {
		ended := jobEnded(j)
		i := listed(j)
		switch {
		case i < 0 && !ended:
			cj.Status.Active = append(cj.Status.Active, jobReference(j))
		case i >= 0 && ended:
			cj.Status.Active = slices.Delete(cj.Status.Active, i, i+1)
			status := "Complete"
			if jobCondition(j, batchv1.JobFailed) != nil {
				status = "Failed"
			}
			c.Events.Eventf(cj, corev1.EventTypeNormal, "SawCompletedJob", "Saw completed job: %s, condition: %v", j.Name, status)
		}
		if j.Status.CompletionTime != nil && jobCondition(j, batchv1.JobComplete) != nil &&
			(cj.Status.LastSuccessfulTime == nil || j.Status.CompletionTime.After(cj.Status.LastSuccessfulTime.Time)) {
			cj.Status.LastSuccessfulTime = j.Status.CompletionTime
		}
	}
	cj.Status.Active = slices.DeleteFunc(cj.Status.Active, func(r corev1.ObjectReference) bool {
		if slices.ContainsFunc(mine, func(j *batchv1.Job) bool { return j.UID == r.UID }) {
			return false
		}
		// It may only not have been seen yet.
		if j, err := c.jobs.Get(ctx, r.Namespace, r.Name); err == nil && j.UID == r.UID {
			return false
		}
		c.Events.Eventf(cj, corev1.EventTypeNormal, "MissingJob", "Active job went missing: %v", r.Name)
		return true
	})
}

func jobReference(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID, ResourceVersion: j.ResourceVersion}
}

// schedule parses a CronJob's schedule in its time zone.
func schedule(cj *batchv1.CronJob) (cron.Schedule, error) {
	text := cj.Spec.Schedule
	if cj.Spec.TimeZone != nil && !strings.Contains(text, "TZ") {
		text = "TZ=" + *cj.Spec.TimeZone + " " + text
	}
	return cron.ParseStandard(text)
}

// start makes the Job that is due, if any, and says when the next one is.
func (c *cronJobs) start(ctx context.Context, cj *batchv1.CronJob, mine []*batchv1.Job) (time.Duration, error) {
	if cj.DeletionTimestamp != nil || ptr.Deref(cj.Spec.Suspend, false) {
		return 0, nil
	}
	sched, err := schedule(cj)
	if err != nil {
		c.Events.Eventf(cj, corev1.EventTypeWarning, "UnparseableSchedule", "unparseable schedule: %q : %s", cj.Spec.Schedule, err)
		return 0, nil
	}
	now := time.Now()
	due, missed := c.due(cj, sched, now)
	wait := time.Until(sched.Next(now)) + 100*time.Millisecond
	if due.IsZero() {
		return wait, nil
	}
	if missed > 100 {
		c.Events.Eventf(cj, corev1.EventTypeWarning, "TooManyMissedTimes", "too many missed start times: %d. Set or decrease .spec.startingDeadlineSeconds or check clock skew", missed)
	}
	if d := cj.Spec.StartingDeadlineSeconds; d != nil && now.After(due.Add(time.Duration(*d)*time.Second)) {
		c.Events.Eventf(cj, corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s", due.UTC().Format(time.RFC1123Z))
		return wait, nil
	}
	name := fmt.Sprintf("%s-%d", cj.Name, due.Unix()/60)
	if slices.ContainsFunc(mine, func(j *batchv1.Job) bool { return j.Name == name }) {
		cj.Status.LastScheduleTime = &metav1.Time{Time: due}
		return wait, nil
	}
	switch cj.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if len(cj.Status.Active) > 0 {
			c.Events.Event(cj, corev1.EventTypeNormal, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid")
			return wait, nil
		}
	case batchv1.ReplaceConcurrent:
		for _, ref := range cj.Status.Active {
			for _, j := range mine {
				if j.UID == ref.UID {
					if err := c.remove(ctx, cj, j); err != nil {
						return 0, err
					}
				}
			}
		}
		cj.Status.Active = nil
	}
	job, err := c.jobs.Create(ctx, newCronJobRun(cj, name, due, c.access))
	switch {
	case apierrors.IsAlreadyExists(err):
		present, err := c.jobs.Get(ctx, cj.Namespace, name)
		if err != nil {
			return 0, err
		}
		if ref := metav1.GetControllerOf(present); ref == nil || ref.UID != cj.UID {
			return wait, nil
		}
		job = present
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	case err != nil:
		c.Events.Eventf(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		return 0, err
	default:
		c.Events.Eventf(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	}
	if !slices.ContainsFunc(cj.Status.Active, func(r corev1.ObjectReference) bool { return r.UID == job.UID }) {
		cj.Status.Active = append(cj.Status.Active, jobReference(job))
	}
	cj.Status.LastScheduleTime = &metav1.Time{Time: due}
	return wait, nil
}

// due is the latest start time since the last one that has passed, zero if none, and how many have passed.
func (c *cronJobs) due(cj *batchv1.CronJob, sched cron.Schedule, now time.Time) (time.Time, int) {
	earliest := cj.CreationTimestamp.Time
	if cj.Status.LastScheduleTime != nil {
		earliest = cj.Status.LastScheduleTime.Time
	}
	if d := cj.Spec.StartingDeadlineSeconds; d != nil {
		if limit := now.Add(-time.Duration(*d) * time.Second); limit.After(earliest) {
			earliest = limit
		}
	}
	var due time.Time
	n := 0
	for t := sched.Next(earliest); !t.IsZero() && !t.After(now); t = sched.Next(t) {
		due = t
		if n++; n == manyMissed {
			// After a very long absence the exact number matters to nobody: go on from the recent past.
			if recent := now.Add(-time.Hour); recent.After(t) {
				t = recent
			}
		}
	}
	return due, n
}

func newCronJobRun(cj *batchv1.CronJob, name string, due time.Time, access client.Resource[*batchv1.CronJob]) *batchv1.Job {
	template := cj.Spec.JobTemplate.DeepCopy()
	annotations := template.Annotations
	if annotations == nil {
		annotations = map[string]string{}
	}
	if zone, err := time.LoadLocation(ptr.Deref(cj.Spec.TimeZone, "")); err == nil && cj.Spec.TimeZone != nil {
		due = due.In(zone)
	}
	annotations[batchv1.CronJobScheduledTimestampAnnotation] = due.Format(time.RFC3339)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: cj.Namespace, Labels: template.Labels, Annotations: annotations,
			CreationTimestamp: metav1.Time{Time: due},
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(cj, access.Kind().GroupVersionKind)},
		},
		Spec: template.Spec,
	}
}
