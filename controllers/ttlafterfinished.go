package controllers

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// ttlAfterFinished removes Jobs some time after they have ended, as their spec asks for.
type ttlAfterFinished struct {
	Deps
	queue *queue.Queue[string]
	jobs  client.TypedLister[*batchv1.Job]
}

func newTTLAfterFinished(d Deps) Controller {
	return &ttlAfterFinished{Deps: d, queue: queue.New[string]()}
}

func (c *ttlAfterFinished) Run(ctx context.Context) error {
	c.jobs = client.For[*batchv1.Job](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 2, c.sync, func(e client.Event) {
		if job := e.Object().(*batchv1.Job); e.New != nil && job.Spec.TTLSecondsAfterFinished != nil {
			c.queue.Add(job.Namespace + "/" + job.Name)
		}
	}, client.For[*batchv1.Job](c.Client).Scope())
}

func (c *ttlAfterFinished) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	job, ok := c.jobs.Get(namespace, name)
	if !ok || job.DeletionTimestamp != nil || job.Spec.TTLSecondsAfterFinished == nil {
		return 0, nil
	}
	for _, cond := range job.Status.Conditions {
		if cond.Status != corev1.ConditionTrue || cond.Type != batchv1.JobComplete && cond.Type != batchv1.JobFailed {
			continue
		}
		end := cond.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second)
		if left := time.Until(end); left > 0 {
			return left, nil
		}
		err := client.For[*batchv1.Job](c.Client).Delete(ctx, namespace, name, metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{UID: &job.UID},
		})
		return 0, ignoreMissing(err)
	}
	return 0, nil
}
