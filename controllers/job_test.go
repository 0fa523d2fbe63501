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

func job(change func(*batchv1.JobSpec)) *batchv1.Job {
	template := podTemplate("work", "a")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "work", Namespace: "ns"}, Spec: batchv1.JobSpec{Template: template}}
	change(&j.Spec)
	return j
}

func indexedJob(completions, parallelism int32, change func(*batchv1.JobSpec)) *batchv1.Job {
	return job(func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr.To(batchv1.IndexedCompletion), &completions, &parallelism
		change(s)
	})
}

func unchanged(*batchv1.JobSpec) {}

// finish ends all running pods: succeed says how.
func (c *cluster) finish(succeed func(*corev1.Pod) bool) {
	for _, p := range c.pods() {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		if succeed(p) {
			c.setPod(p.Name, corev1.PodSucceeded, 0)
		} else {
			c.setPod(p.Name, corev1.PodFailed, 1)
		}
	}
	c.settle()
}

func always(*corev1.Pod) bool { return true }
func never(*corev1.Pod) bool  { return false }

// conditions of a Job that are true, as "Type/Reason ...".
func jobConditions(j *batchv1.Job) string {
	var out []string
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out = append(out, fmt.Sprintf("%s/%s", c.Type, c.Reason))
		}
	}
	return strings.Join(out, " ")
}

func wantJob(c *cluster, conditions string, succeeded, failed int32) *batchv1.Job {
	c.t.Helper()
	j := read[*batchv1.Job](c, "work")
	if got := jobConditions(j); got != conditions {
		c.t.Errorf("conditions %q, want %q", got, conditions)
	}
	if j.Status.Succeeded != succeeded || j.Status.Failed != failed {
		c.t.Errorf("%d succeeded and %d failed, want %d and %d", j.Status.Succeeded, j.Status.Failed, succeeded, failed)
	}
	return j
}

func (c *cluster) wantActive(n int) {
	c.t.Helper()
	got := 0
	for _, p := range c.pods() {
		if podActive(p) {
			got++
		}
	}
	if got != n {
		c.t.Errorf("%d active pods, want %d", got, n)
	}
}

func TestJobCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptr.To[int32](5), ptr.To[int32](2) }))
		c.wantActive(2)
		j := wantJob(c, "", 0, 0)
		if j.Status.Active != 2 || ptr.Deref(j.Status.Ready, 0) != 2 || j.Status.StartTime == nil {
			t.Errorf("status %+v, want 2 active and ready and a start time", j.Status)
		}
		c.finish(always)
		wantJob(c, "", 2, 0)
		c.finish(always)
		c.wantActive(1)
		c.finish(always)
		j = wantJob(c, "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached", 5, 0)
		if j.Status.CompletionTime == nil || j.Status.Active != 0 {
			t.Errorf("status %+v, want a completion time and nothing active", j.Status)
		}
		for _, p := range c.pods() {
			if hasTracking(p) {
				t.Errorf("pod %s still has the finalizer", p.Name)
			}
		}
		c.wantEvent("Normal Completed Job completed")
	})
}

func TestJobWorkQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.Parallelism = ptr.To[int32](3) }))
		c.wantActive(3)
		c.setPod(c.pods()[0].Name, corev1.PodSucceeded, 0)
		c.settle()
		c.wantActive(2) // one success: no more are started
		c.finish(always)
		wantJob(c, "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached", 3, 0)
	})
}

func TestJobBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.BackoffLimit = ptr.To[int32](2) }))
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second} {
			c.finish(never)
			c.wantActive(0)
			time.Sleep(wait - 2*time.Second)
			c.wantActive(0)
			time.Sleep(3 * time.Second)
			c.settle()
			c.wantActive(1)
			wantJob(c, "", 0, int32(i+1))
		}
		c.finish(never)
		j := wantJob(c, "FailureTarget/BackoffLimitExceeded Failed/BackoffLimitExceeded", 0, 3)
		if got, want := jobCondition(j, batchv1.JobFailed).Message, "Job has reached the specified backoff limit"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		c.wantEvent("Warning BackoffLimitExceeded Job has reached the specified backoff limit")
	})
}

// The pods that a failed Job takes down count as failed, those of a shrunk one do not.
func TestJobCountsWhatItTakesDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) {
			s.Completions, s.Parallelism, s.BackoffLimit = ptr.To[int32](5), ptr.To[int32](4), ptr.To[int32](0)
		}))
		edit(c, "work", func(j *batchv1.Job) { j.Spec.Parallelism = ptr.To[int32](3) })
		c.wantActive(3)
		wantJob(c, "", 0, 0)
		c.setPod(c.pods()[0].Name, corev1.PodFailed, 1)
		c.settle()
		wantJob(c, "FailureTarget/BackoffLimitExceeded Failed/BackoffLimitExceeded", 0, 3)
		c.wantActive(0)
	})
}

func TestJobDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr.To[int64](60) }))
		time.Sleep(58 * time.Second)
		wantJob(c, "", 0, 0)
		time.Sleep(5 * time.Second)
		j := wantJob(c, "FailureTarget/DeadlineExceeded Failed/DeadlineExceeded", 0, 1)
		if got, want := jobCondition(j, batchv1.JobFailed).Message, "Job was active longer than specified deadline"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	})
}

func TestJobSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.Suspend = ptr.To(true) }))
		c.wantActive(0)
		if j := wantJob(c, "Suspended/JobSuspended", 0, 0); j.Status.StartTime != nil {
			t.Error("a suspended Job has a start time")
		}
		edit(c, "work", func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(false) })
		c.wantActive(1)
		if j := wantJob(c, "", 0, 0); j.Status.StartTime == nil {
			t.Error("a resumed Job has no start time")
		}
		edit(c, "work", func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })
		c.wantActive(0)
		wantJob(c, "Suspended/JobSuspended", 0, 0)
		c.wantEvent("Normal Suspended Job suspended")
		c.wantEvent("Normal Resumed Job resumed")
	})
}

func TestJobIndexed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, indexedJob(6, 4, unchanged))
		c.wantActive(4)
		for i, p := range c.pods() { // names sort by index
			if p.Annotations[batchv1.JobCompletionIndexAnnotation] != fmt.Sprint(i) || p.Labels[batchv1.JobCompletionIndexAnnotation] != fmt.Sprint(i) ||
				!strings.HasPrefix(p.Name, fmt.Sprintf("work-%d-", i)) || p.Spec.Hostname != fmt.Sprintf("work-%d", i) {
				t.Errorf("pod %s, host %s, labels %v is not that of index %d", p.Name, p.Spec.Hostname, p.Labels, i)
			}
			env := p.Spec.Containers[0].Env
			if len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" || env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['batch.kubernetes.io/job-completion-index']" {
				t.Errorf("environment %v", env)
			}
		}
		c.finish(func(p *corev1.Pod) bool { return podIndex(p) != 1 })
		if j := wantJob(c, "", 3, 1); j.Status.CompletedIndexes != "0,2,3" {
			t.Errorf("completed indexes %q, want 0,2,3", j.Status.CompletedIndexes)
		}
		time.Sleep(15 * time.Second)
		c.finish(always)
		if j := wantJob(c, "SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached", 6, 1); j.Status.CompletedIndexes != "0-5" {
			t.Errorf("completed indexes %q, want 0-5", j.Status.CompletedIndexes)
		}
	})
}

func TestJobBackoffLimitPerIndex(t *testing.T) {
	for name, test := range map[string]struct {
		limit      *int32
		conditions string
		failed     string
	}{
		"no limit of indexes": {nil, "FailureTarget/FailedIndexes Failed/FailedIndexes", "1"},
		"limit exceeded":      {ptr.To[int32](0), "FailureTarget/MaxFailedIndexesExceeded Failed/MaxFailedIndexesExceeded", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "job-controller")
				create(c, indexedJob(3, 3, func(s *batchv1.JobSpec) {
					s.BackoffLimitPerIndex, s.MaxFailedIndexes = ptr.To[int32](1), test.limit
				}))
				c.finish(func(p *corev1.Pod) bool { return podIndex(p) != 1 })
				wantJob(c, "", 2, 1)
				time.Sleep(11 * time.Second)
				c.settle()
				c.wantActive(1)
				for _, p := range c.pods() {
					if podActive(p) && p.Annotations[batchv1.JobIndexFailureCountAnnotation] != "1" {
						t.Errorf("the second pod of index 1 has failure count %q, want 1", p.Annotations[batchv1.JobIndexFailureCountAnnotation])
					}
				}
				c.finish(never)
				j := wantJob(c, test.conditions, 2, 2)
				if got := ptr.Deref(j.Status.FailedIndexes, ""); got != test.failed || j.Status.CompletedIndexes != "0,2" {
					t.Errorf("failed indexes %q and completed %q, want %q and 0,2", got, j.Status.CompletedIndexes, test.failed)
				}
			})
		})
	}
}

func TestJobPodFailurePolicy(t *testing.T) {
	rules := func(action batchv1.PodFailurePolicyAction) *batchv1.PodFailurePolicy {
		return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      action,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}},
		}}}
	}
	t.Run("fail the job", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, "job-controller")
			create(c, job(func(s *batchv1.JobSpec) { s.PodFailurePolicy = rules(batchv1.PodFailurePolicyActionFailJob) }))
			pod := c.pods()[0].Name
			c.setPod(pod, corev1.PodFailed, 42)
			c.settle()
			j := wantJob(c, "FailureTarget/PodFailurePolicy Failed/PodFailurePolicy", 0, 1)
			want := fmt.Sprintf("Container c for pod ns/%s failed with exit code 42 matching FailJob rule at index 0", pod)
			if got := jobCondition(j, batchv1.JobFailed); got == nil || got.Message != want {
				t.Errorf("condition %v, want message %q", got, want)
			}
		})
	})
	t.Run("ignore", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, "job-controller")
			create(c, job(func(s *batchv1.JobSpec) {
				s.PodFailurePolicy, s.BackoffLimit = rules(batchv1.PodFailurePolicyActionIgnore), ptr.To[int32](0)
			}))
			c.setPod(c.pods()[0].Name, corev1.PodFailed, 42)
			time.Sleep(15 * time.Second)
			c.settle()
			wantJob(c, "", 0, 0)
			c.wantActive(1)
		})
	})
	t.Run("fail the index", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, "job-controller")
			create(c, indexedJob(2, 2, func(s *batchv1.JobSpec) {
				s.PodFailurePolicy, s.BackoffLimitPerIndex = rules(batchv1.PodFailurePolicyActionFailIndex), ptr.To[int32](5)
			}))
			c.setPod(c.pods()[0].Name, corev1.PodFailed, 42)
			c.settle()
			c.finish(always)
			if j := wantJob(c, "FailureTarget/FailedIndexes Failed/FailedIndexes", 1, 1); ptr.Deref(j.Status.FailedIndexes, "") != "0" {
				t.Errorf("failed indexes %v, want 0", j.Status.FailedIndexes)
			}
		})
	})
}

func TestJobSuccessPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, indexedJob(4, 4, func(s *batchv1.JobSpec) {
			s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: ptr.To("0-2"), SucceededCount: ptr.To[int32](1)}}}
		}))
		c.setPod(c.pods()[3].Name, corev1.PodSucceeded, 0)
		c.settle()
		wantJob(c, "", 1, 0)
		c.setPod(c.pods()[1].Name, corev1.PodSucceeded, 0)
		c.settle()
		j := wantJob(c, "SuccessCriteriaMet/SuccessPolicy Complete/SuccessPolicy", 2, 0)
		if got, want := jobCondition(j, batchv1.JobComplete).Message, "Matched rules at index 0"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		c.wantActive(0)
	})
}

func TestJobReplacesOnlyEndedPods(t *testing.T) {
	for policy, want := range map[batchv1.PodReplacementPolicy]int{batchv1.TerminatingOrFailed: 1, batchv1.Failed: 0} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "job-controller")
				create(c, job(func(s *batchv1.JobSpec) { s.PodReplacementPolicy = &policy }))
				// A pod whose node does not answer stays terminating.
				pod := c.pods()[0].DeepCopy()
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Now()), ptr.To[int64](30)
				pod.Finalizers = append(pod.Finalizers, "example.com/slow")
				c.Put(pod)
				time.Sleep(15 * time.Second)
				c.settle()
				c.wantActive(want)
				if j := read[*batchv1.Job](c, "work"); ptr.Deref(j.Status.Terminating, 0) != 1 {
					t.Errorf("terminating %v, want 1", j.Status.Terminating)
				}
			})
		})
	}
}

func TestJobManagedByOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.ManagedBy = ptr.To("example.com/queue") }))
		c.wantActive(0)
		if j := read[*batchv1.Job](c, "work"); j.Status.StartTime != nil {
			t.Error("the Job of another controller was started")
		}
	})
}

// Pods of a Job that is gone lose the finalizer; otherwise they could never be removed.
func TestJobForsakenPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "job-controller")
		create(c, job(func(s *batchv1.JobSpec) { s.Parallelism = ptr.To[int32](2) }))
		if err := client.For[*batchv1.Job](c).Delete(context.Background(), "ns", "work", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle()
		for _, p := range c.pods() {
			if hasTracking(p) {
				t.Errorf("pod %s still has the finalizer", p.Name)
			}
		}
	})
}

func TestIntervals(t *testing.T) {
	for _, text := range []string{"", "0", "0,1", "0-2", "0,2", "1,3-5,7", "0-2,4,6-9"} {
		if got := parseIntervals(text).String(); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	s := intervals(nil)
	for _, n := range []int{5, 1, 3, 2, 9, 4} {
		s = s.add(n)
	}
	if s.String() != "1-5,9" || s.len() != 6 || !s.has(3) || s.has(6) {
		t.Errorf("set %s of %d", s, s.len())
	}
	if got := s.intersect(parseIntervals("4-9")).String(); got != "4,5,9" {
		t.Errorf("intersection %s, want 4,5,9", got)
	}
}
