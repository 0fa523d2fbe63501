package batch

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func at[T any](v T) *T { return &v }

func job(change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", Namespace: "default", UID: "1a2b"}}
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "c", Image: "image:1"}}}
	change(j)
	jobs().Default(j)
	jobs().PrepareCreate(j)
	return j
}

func check(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestJobDefaults(t *testing.T) {
	j := job(func(*batchv1.Job) {})
	if *j.Spec.Completions != 1 || *j.Spec.Parallelism != 1 || *j.Spec.BackoffLimit != 6 || *j.Spec.CompletionMode != "NonIndexed" ||
		*j.Spec.Suspend || *j.Spec.ManualSelector || *j.Spec.PodReplacementPolicy != "TerminatingOrFailed" {
		t.Errorf("%+v", j.Spec)
	}
	if diff := cmp.Diff(map[string]string{"batch.kubernetes.io/controller-uid": "1a2b"}, j.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	labels := map[string]string{"batch.kubernetes.io/controller-uid": "1a2b", "batch.kubernetes.io/job-name": "pi", "controller-uid": "1a2b", "job-name": "pi"}
	if diff := cmp.Diff(labels, j.Spec.Template.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(labels, j.Labels); diff != "" {
		t.Errorf("labels of the job itself (-want +got):\n%s", diff)
	}
	labelled := job(func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{"app": "pi"} })
	if diff := cmp.Diff(map[string]string{"app": "pi"}, labelled.Labels); diff != "" {
		t.Errorf("labels from the template (-want +got):\n%s", diff)
	}
	queue := job(func(j *batchv1.Job) { j.Spec.Parallelism = at[int32](3) })
	if queue.Spec.Completions != nil {
		t.Error("a work queue job got completions")
	}
	perIndex := job(func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = at[int32](1) })
	if *perIndex.Spec.BackoffLimit != 1<<31-1 {
		t.Errorf("backoff limit %d beside one per index", *perIndex.Spec.BackoffLimit)
	}
}

func TestJobValidation(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*batchv1.Job)
		want   []string
	}{
		"fine":    {func(*batchv1.Job) {}, nil},
		"restart": {func(j *batchv1.Job) { j.Spec.Template.Spec.RestartPolicy = "" }, []string{`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		"indexed": {func(j *batchv1.Job) {
			j.Spec.CompletionMode = at(batchv1.IndexedCompletion)
			j.Spec.Parallelism = at[int32](1)
		},
			[]string{"spec.completions: Required value: when completion mode is Indexed"}},
		"per index": {func(j *batchv1.Job) { j.Spec.BackoffLimitPerIndex = at[int32](1) },
			[]string{"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"}},
		"manager": {func(j *batchv1.Job) { j.Spec.ManagedBy = at("invalid custom controller name") },
			[]string{`spec.managedBy: Invalid value: "invalid custom controller name": must be a domain-prefixed path (such as "acme.io/foo")`}},
		"failure policy": {func(j *batchv1.Job) {
			j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:      "FailJob",
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{19, 11}},
			}}}
		}, []string{"spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [19,11]: must be ordered"}},
		"success policy": {func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Completions = at(batchv1.IndexedCompletion), at[int32](5)
			j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: at("0-2"), SucceededCount: at[int32](4)}}}
		}, []string{"spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)"}},
	} {
		t.Run(name, func(t *testing.T) { check(t, jobs().Validate(job(test.change)), test.want...) })
	}
}

func TestJobUpdate(t *testing.T) {
	indexed := func(n, p int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Spec.CompletionMode, j.Spec.Completions, j.Spec.Parallelism = at(batchv1.IndexedCompletion), at(n), at(p)
		}
	}
	suspended := job(func(j *batchv1.Job) { j.Spec.Suspend = at(true) })
	check(t, jobs().ValidateUpdate(job(indexed(5, 5)), job(indexed(3, 2))))
	check(t, jobs().ValidateUpdate(job(indexed(5, 3)), job(indexed(3, 3))),
		"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism")
	check(t, jobs().ValidateUpdate(job(func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"} }), suspended))
	running := job(func(*batchv1.Job) {})
	changed := job(func(j *batchv1.Job) { j.Spec.Template.Spec.NodeSelector = map[string]string{"zone": "a"} })
	if errs := jobs().ValidateUpdate(changed, running); len(errs) != 1 || errs[0].Field != "spec.template" {
		t.Errorf("a running job's template may change: %v", errs)
	}
}

func TestJobCells(t *testing.T) {
	now := time.Unix(10000, 0)
	j := job(func(j *batchv1.Job) { j.Spec.Completions = at[int32](2) })
	j.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	j.Status = batchv1.JobStatus{Succeeded: 1, StartTime: at(metav1.NewTime(now.Add(-30 * time.Minute)))}
	want := []any{"pi", "Running", "1/2", "30m", "60m", "c", "image:1", "batch.kubernetes.io/controller-uid=1a2b"}
	if diff := cmp.Diff(want, jobs().Cells(j, now)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	for kind, status := range map[batchv1.JobConditionType]string{
		"Complete": "Complete", "Failed": "Failed", "Suspended": "Suspended", "FailureTarget": "FailureTarget", "SuccessCriteriaMet": "SuccessCriteriaMet",
	} {
		j.Status.Conditions = []batchv1.JobCondition{{Type: kind, Status: "True"}}
		if got := jobs().Cells(j, now)[1]; got != status {
			t.Errorf("status %q with condition %s", got, kind)
		}
	}
}

func TestCronJob(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*batchv1.CronJob)
		want   []string
	}{
		"fine":      {func(*batchv1.CronJob) {}, nil},
		"zone":      {func(c *batchv1.CronJob) { c.Spec.TimeZone = at("Europe/Vienna") }, nil},
		"empty":     {func(c *batchv1.CronJob) { c.Spec.Schedule = "" }, []string{"spec.schedule: Required value"}},
		"long name": {func(c *batchv1.CronJob) { c.Name = "a123456789b123456789c123456789d123456789e123456789xyz" }, []string{`metadata.name: Invalid value: "a123456789b123456789c123456789d123456789e123456789xyz": must be no more than 52 characters`}},
		"TZ":        {func(c *batchv1.CronJob) { c.Spec.Schedule = "TZ=UTC 0 * * * *" }, []string{`spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`}},
		"no zone":   {func(c *batchv1.CronJob) { c.Spec.TimeZone = at("Mars/Base") }, []string{`spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base`}},
		"local":     {func(c *batchv1.CronJob) { c.Spec.TimeZone = at("local") }, []string{`spec.timeZone: Invalid value: "local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones`}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}, Spec: batchv1.CronJobSpec{Schedule: "0/5 * * * ?"}}
			c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: "Never", Containers: []corev1.Container{{Name: "c", Image: "image:1"}}}
			test.change(c)
			cronJobs().Default(c)
			check(t, cronJobs().Validate(c), test.want...)
		})
	}
	if err := parseSchedule("TZ=0"); err == nil {
		t.Error("a zone without a schedule was accepted")
	}
}

func TestCountIndexes(t *testing.T) {
	for list, want := range map[string]int32{"0": 1, "0-2": 3, "0,2-4": 4} {
		if got, err := countIndexes(list, 5); err != nil || got != want {
			t.Errorf("countIndexes(%q) = %d, %v", list, got, err)
		}
	}
	for _, list := range []string{"", "a", "3-1", "1,1", "5", "-1", "0-5"} {
		if got, err := countIndexes(list, 5); err == nil {
			t.Errorf("countIndexes(%q) = %d", list, got)
		}
	}
}
