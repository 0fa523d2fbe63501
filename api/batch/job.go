package batch

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func jobs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"),
		Plural:           "jobs",
		Singular:         "job",
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(batchv1.Job) },
		NewList:          func() runtime.Object { return new(batchv1.JobList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
		Default:          defaultJob,
		PrepareCreate:    func(obj api.Object) { generateSelector(obj.(*batchv1.Job)) },
		Validate:         func(obj api.Object) field.ErrorList { return validateJob(obj.(*batchv1.Job)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			return validateJobUpdate(obj.(*batchv1.Job), old.(*batchv1.Job))
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			return validateJobStatus(&obj.(*batchv1.Job).Status, &old.(*batchv1.Job).Status)
		},
		Warnings: func(obj, old api.Object) []string {
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*batchv1.Job).Spec.Template
			}
			return append(nameWarnings(obj, old), jobWarnings(&obj.(*batchv1.Job).Spec, oldTemplate, field.NewPath("spec"))...)
		},
		// Jobs did so before the garbage collector, and batch/v1 kept it.
		DefaultOrphan: true,
		FieldNames:    []string{"status.successful"},
		FieldValue: func(obj api.Object, name string) string {
			return strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Status", "Status of the job."),
			api.Text("Completions", rules.Doc(batchv1.JobStatus{}, "succeeded")),
			api.Text("Duration", "Time required to complete the job."),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(rules.Doc(batchv1.JobSpec{}, "selector")),
		},
		Cells: jobCells,
	}
}

func defaultJob(obj api.Object) {
	job := obj.(*batchv1.Job)
	spec := &job.Spec
	core.DefaultPodTemplate(&spec.Template)
	if spec.Completions == nil && spec.Parallelism == nil {
		rules.SetDefault(&spec.Completions, 1)
	}
	rules.SetDefault(&spec.Parallelism, 1)
	if spec.BackoffLimitPerIndex != nil {
		rules.SetDefault(&spec.BackoffLimit, math.MaxInt32)
	}
	rules.SetDefault(&spec.BackoffLimit, 6)
	if len(job.Labels) == 0 {
		job.Labels = maps.Clone(spec.Template.Labels)
	}
	rules.SetDefault(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	rules.SetDefault(&spec.Suspend, false)
	rules.SetDefault(&spec.ManualSelector, false)
	defaultFailurePolicy(spec.PodFailurePolicy)
	if spec.PodFailurePolicy != nil {
		rules.SetDefault(&spec.PodReplacementPolicy, batchv1.Failed)
	}
	rules.SetDefault(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

func defaultFailurePolicy(policy *batchv1.PodFailurePolicy) {
	if policy == nil {
		return
	}
	for _, rule := range policy.Rules {
		for i := range rule.OnPodConditions {
			if rule.OnPodConditions[i].Status == "" {
				rule.OnPodConditions[i].Status = corev1.ConditionTrue
			}
		}
	}
}

// generateSelector makes the job select exactly its own pods, by its UID. The labels without a prefix are what pods of
// jobs were known by before Kubernetes 1.27, and are kept.
func generateSelector(job *batchv1.Job) {
	if rules.Value(job.Spec.ManualSelector) {
		return
	}
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	labels := job.Spec.Template.Labels
	labels["job-name"] = job.Name
	labels["controller-uid"] = string(job.UID)
	labels[batchv1.JobNameLabel] = job.Name
	labels[batchv1.ControllerUidLabel] = string(job.UID)
	if len(job.Labels) == 0 {
		job.Labels = maps.Clone(labels) // as the defaults have it for labels that the template came with
	}
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, legacy := job.Spec.Selector.MatchLabels["controller-uid"]; !legacy {
		job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(job.UID)
	}
}

func jobCells(obj api.Object, now time.Time) []any {
	job := obj.(*batchv1.Job)
	names, images := api.ContainersAndImages(job.Spec.Template.Spec.Containers)
	var completions string
	switch parallelism := rules.Value(job.Spec.Parallelism); {
	case job.Spec.Completions != nil:
		completions = fmt.Sprintf("%d/%d", job.Status.Succeeded, *job.Spec.Completions)
	case parallelism > 1:
		completions = fmt.Sprintf("%d/1 of %d", job.Status.Succeeded, parallelism)
	default:
		completions = fmt.Sprintf("%d/1", job.Status.Succeeded)
	}
	var took string
	switch {
	case job.Status.StartTime == nil:
	case job.Status.CompletionTime == nil:
		took = duration.HumanDuration(now.Sub(job.Status.StartTime.Time))
	default:
		took = duration.HumanDuration(job.Status.CompletionTime.Sub(job.Status.StartTime.Time))
	}
	return []any{job.Name, jobStatus(job), completions, took, api.Age(job.CreationTimestamp, now), names, images, api.Selector(job.Spec.Selector)}
}

func jobStatus(job *batchv1.Job) string {
	switch {
	case hasCondition(job, batchv1.JobComplete):
		return "Complete"
	case hasCondition(job, batchv1.JobFailed):
		return "Failed"
	case job.DeletionTimestamp != nil:
		return "Terminating"
	case hasCondition(job, batchv1.JobSuspended):
		return "Suspended"
	case hasCondition(job, batchv1.JobFailureTarget):
		return "FailureTarget"
	case hasCondition(job, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func hasCondition(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func nameWarnings(obj, old api.Object) []string {
	if old != nil {
		return nil
	}
	msgs := utilvalidation.IsDNS1123Label(obj.GetName())
	if len(msgs) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", msgs)}
}

func jobWarnings(spec *batchv1.JobSpec, oldTemplate *corev1.PodTemplateSpec, path *field.Path) []string {
	var warnings []string
	if completions, parallelism := rules.Value(spec.Completions), rules.Value(spec.Parallelism); rules.Value(spec.CompletionMode) == batchv1.IndexedCompletion &&
		completions > completionsSoftLimit && parallelism > parallelismAboveSoftLimit {
		warnings = append(warnings, "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(warnings, core.PodTemplateWarnings(path.Child("template"), &spec.Template, oldTemplate)...)
}
