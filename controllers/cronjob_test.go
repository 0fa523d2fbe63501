package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
)

func cronJob(schedule string, change func(*batchv1.CronJobSpec)) *batchv1.CronJob {
	cj := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "tick", Namespace: "ns"},
		Spec:       batchv1.CronJobSpec{Schedule: schedule, JobTemplate: batchv1.JobTemplateSpec{Spec: job(unchanged).Spec}},
	}
	change(&cj.Spec)
	return cj
}

func plainCron(*batchv1.CronJobSpec) {}

func (c *cluster) jobs() []*batchv1.Job {
	c.t.Helper()
	jobs, err := client.For[*batchv1.Job](c).List(context.Background(), "ns", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return jobs
}

// endJob gives a Job a terminal condition.
func (c *cluster) endJob(j *batchv1.Job, kind batchv1.JobConditionType) {
	j = j.DeepCopy()
	j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
	if j.Status.StartTime = ptr.To(j.CreationTimestamp); kind == batchv1.JobComplete {
		j.Status.CompletionTime = ptr.To(metav1.Now())
	}
	c.Put(j)
	c.settle()
}

func TestCronJobStartsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // bubbles begin at midnight UTC, 2000-01-01
		c := startCluster(t, "cronjob-controller")
		create(c, cronJob("*/5 * * * *", plainCron))
		time.Sleep(4 * time.Minute)
		if n := len(c.jobs()); n != 0 {
			t.Fatalf("%d Jobs before the time, want none", n)
		}
		time.Sleep(time.Minute)
		c.settle()
		jobs := c.jobs()
		due := time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)
		if len(jobs) != 1 || jobs[0].Name != fmt.Sprintf("tick-%d", due.Unix()/60) {
			t.Fatalf("Jobs %v, want the one of 00:05", jobs)
		}
		if got := jobs[0].Annotations[batchv1.CronJobScheduledTimestampAnnotation]; got != due.Format(time.RFC3339) {
			t.Errorf("scheduled timestamp %q, want %q", got, due.Format(time.RFC3339))
		}
		s := read[*batchv1.CronJob](c, "tick").Status
		if len(s.Active) != 1 || s.Active[0].Name != jobs[0].Name || !s.LastScheduleTime.Time.Equal(due) {
			t.Errorf("status %+v", s)
		}
		c.wantEvent("Normal SuccessfulCreate Created job " + jobs[0].Name)
		c.endJob(jobs[0], batchv1.JobComplete)
		if s := read[*batchv1.CronJob](c, "tick").Status; len(s.Active) != 0 || s.LastSuccessfulTime == nil {
			t.Errorf("after the Job's end status %+v", s)
		}
		c.wantEvent(fmt.Sprintf("Normal SawCompletedJob Saw completed job: %s, condition: Complete", jobs[0].Name))
	})
}

func TestCronJobTimeZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "cronjob-controller")
		create(c, cronJob("0 9 * * *", func(s *batchv1.CronJobSpec) { s.TimeZone = ptr.To("Asia/Tokyo") }))
		time.Sleep(24*time.Hour + time.Minute) // 09:00 in Tokyo is midnight UTC
		jobs := c.jobs()
		if len(jobs) != 1 {
			t.Fatalf("%d Jobs within a day, want 1", len(jobs))
		}
		if got, want := jobs[0].Annotations[batchv1.CronJobScheduledTimestampAnnotation], "2000-01-02T09:00:00+09:00"; got != want {
			t.Errorf("scheduled timestamp %q, want %q", got, want)
		}
	})
}

func TestCronJobConcurrency(t *testing.T) {
	for policy, want := range map[batchv1.ConcurrencyPolicy]int{batchv1.AllowConcurrent: 3, batchv1.ForbidConcurrent: 1, batchv1.ReplaceConcurrent: 1} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "cronjob-controller")
				create(c, cronJob("* * * * *", func(s *batchv1.CronJobSpec) { s.ConcurrencyPolicy = policy }))
				time.Sleep(3*time.Minute + time.Second)
				synctest.Wait()
				jobs := c.jobs()
				if len(jobs) != want {
					t.Fatalf("%d Jobs after three minutes, want %d", len(jobs), want)
				}
				last := fmt.Sprintf("tick-%d", time.Date(2000, 1, 1, 0, 3, 0, 0, time.UTC).Unix()/60)
				if newest := jobs[len(jobs)-1].Name == last; newest == (policy == batchv1.ForbidConcurrent) {
					t.Errorf("the last Job is %s", jobs[len(jobs)-1].Name)
				}
				if policy == batchv1.ForbidConcurrent {
					c.wantEvent("Normal JobAlreadyActive Not starting job because prior execution is running and concurrency policy is Forbid")
					c.endJob(jobs[0], batchv1.JobComplete)
					if n := len(c.jobs()); n != 2 {
						t.Errorf("%d Jobs once the first ended, want 2: the missed one starts", n)
					}
				}
			})
		})
	}
}

func TestCronJobHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "cronjob-controller")
		create(c, cronJob("* * * * *", func(s *batchv1.CronJobSpec) {
			s.SuccessfulJobsHistoryLimit, s.FailedJobsHistoryLimit = ptr.To[int32](2), ptr.To[int32](1)
		}))
		for i := range 8 {
			time.Sleep(time.Minute)
			c.settle()
			kind := batchv1.JobComplete
			if i%2 == 1 {
				kind = batchv1.JobFailed
			}
			for _, j := range c.jobs() {
				if !jobEnded(j) {
					c.endJob(j, kind)
				}
			}
		}
		complete, failed := 0, 0
		for _, j := range c.jobs() {
			if jobCondition(j, batchv1.JobComplete) != nil {
				complete++
			} else {
				failed++
			}
		}
		if complete != 2 || failed != 1 {
			t.Errorf("%d complete and %d failed Jobs are kept, want 2 and 1", complete, failed)
		}
	})
}

func TestCronJobSuspendAndDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		deadline *int64
		want     int
	}{"without deadline the last missed one starts": {nil, 1}, "with a deadline none starts": {ptr.To[int64](20), 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "cronjob-controller")
				create(c, cronJob("0 * * * *", func(s *batchv1.CronJobSpec) {
					s.Suspend, s.StartingDeadlineSeconds = ptr.To(true), test.deadline
				}))
				time.Sleep(150 * time.Minute)
				if n := len(c.jobs()); n != 0 {
					t.Fatalf("%d Jobs while suspended", n)
				}
				edit(c, "tick", func(cj *batchv1.CronJob) { cj.Spec.Suspend = ptr.To(false) })
				if n := len(c.jobs()); n != test.want {
					t.Errorf("%d Jobs after resuming, want %d", n, test.want)
				}
			})
		})
	}
}

func TestCronJobLongAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "cronjob-controller")
		cj := cronJob("* * * * *", plainCron)
		client.For[*batchv1.CronJob](c).Kind().Default(cj)
		cj.CreationTimestamp = metav1.NewTime(time.Now().AddDate(-1, 0, 0))
		c.Put(cj)
		c.settle()
		if n := len(c.jobs()); n != 1 {
			t.Errorf("%d Jobs after a year, want 1", n)
		}
		missed := false
		for _, e := range c.events() {
			missed = missed || strings.HasPrefix(e, "Warning TooManyMissedTimes")
		}
		if !missed {
			t.Error("no event tells of the missed times")
		}
	})
}
