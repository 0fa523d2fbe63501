package batch

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // Time zones are validated on machines without a zone database too.

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
	"proa/api/rules"
)

func cronJobs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("CronJob"),
		Plural:           "cronjobs",
		Singular:         "cronjob",
		ShortNames:       []string{"cj"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(batchv1.CronJob) },
		NewList:          func() runtime.Object { return new(batchv1.CronJobList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
		Default:          defaultCronJob,
		Validate:         func(obj api.Object) field.ErrorList { return validateCronJob(obj.(*batchv1.CronJob), nil) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			return validateCronJob(obj.(*batchv1.CronJob), old.(*batchv1.CronJob))
		},
		Warnings: func(obj, old api.Object) []string {
			cj := obj.(*batchv1.CronJob)
			var oldTemplate *corev1.PodTemplateSpec
			if old != nil {
				oldTemplate = &old.(*batchv1.CronJob).Spec.JobTemplate.Spec.Template
			}
			warnings := nameWarnings(obj, old)
			if strings.Contains(cj.Spec.Schedule, "TZ") {
				warnings = append(warnings, "spec.schedule: CRON_TZ or TZ used in spec.schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
			}
			return append(warnings, jobWarnings(&cj.Spec.JobTemplate.Spec, oldTemplate, field.NewPath("spec", "jobTemplate", "spec"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Schedule", rules.Doc(batchv1.CronJobSpec{}, "schedule")),
			api.Text("Timezone", rules.Doc(batchv1.CronJobSpec{}, "timeZone")),
			{Name: "Suspend", Type: "boolean", Description: rules.Doc(batchv1.CronJobSpec{}, "suspend")},
			api.Number("Active", rules.Doc(batchv1.CronJobStatus{}, "active")),
			api.Text("Last Schedule", rules.Doc(batchv1.CronJobStatus{}, "lastScheduleTime")),
			api.AgeColumn(),
			api.ContainersColumn(),
			api.ImagesColumn(),
			api.SelectorColumn(rules.Doc(batchv1.JobSpec{}, "selector")),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			cj := obj.(*batchv1.CronJob)
			zone, last, suspend := "<none>", "<none>", "<unset>"
			if cj.Spec.TimeZone != nil {
				zone = *cj.Spec.TimeZone
			}
			if cj.Status.LastScheduleTime != nil {
				last = api.Age(*cj.Status.LastScheduleTime, now)
			}
			if cj.Spec.Suspend != nil {
				suspend = "False"
				if *cj.Spec.Suspend {
					suspend = "True"
				}
			}
			names, images := api.ContainersAndImages(cj.Spec.JobTemplate.Spec.Template.Spec.Containers)
			return []any{cj.Name, cj.Spec.Schedule, zone, suspend, int64(len(cj.Status.Active)), last,
				api.Age(cj.CreationTimestamp, now), names, images, api.Selector(cj.Spec.JobTemplate.Spec.Selector)}
		},
	}
}

func defaultCronJob(obj api.Object) {
	spec := &obj.(*batchv1.CronJob).Spec
	core.DefaultPodTemplate(&spec.JobTemplate.Spec.Template)
	defaultFailurePolicy(spec.JobTemplate.Spec.PodFailurePolicy)
	if spec.ConcurrencyPolicy == "" {
		spec.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	rules.SetDefault(&spec.Suspend, false)
	rules.SetDefault(&spec.SuccessfulJobsHistoryLimit, 3)
	rules.SetDefault(&spec.FailedJobsHistoryLimit, 1)
}

func validateCronJob(cj, old *batchv1.CronJob) field.ErrorList {
	var errs field.ErrorList
	if old == nil && len(cj.Name) > 52 {
		// The controller appends a dash and ten digits to make the names of jobs.
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), cj.Name, "must be no more than 52 characters"))
	}
	path, spec := field.NewPath("spec"), &cj.Spec
	if spec.Schedule == "" {
		errs = append(errs, field.Required(path.Child("schedule"), ""))
	} else {
		errs = append(errs, validateSchedule(cj, old, path.Child("schedule"))...)
	}
	if spec.StartingDeadlineSeconds != nil {
		errs = append(errs, validation.ValidateNonnegativeField(*spec.StartingDeadlineSeconds, path.Child("startingDeadlineSeconds"))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(spec.TimeZone, old.Spec.TimeZone) {
		errs = append(errs, validateTimeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	switch spec.ConcurrencyPolicy {
	case batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent:
	case "":
		errs = append(errs, field.Required(path.Child("concurrencyPolicy"), ""))
	default:
		errs = append(errs, field.NotSupported(path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy,
			[]batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}))
	}
	errs = append(errs, rules.NonNegative(path.Child("successfulJobsHistoryLimit"), spec.SuccessfulJobsHistoryLimit)...)
	errs = append(errs, rules.NonNegative(path.Child("failedJobsHistoryLimit"), spec.FailedJobsHistoryLimit)...)

	path = path.Child("jobTemplate", "spec")
	job := &spec.JobTemplate.Spec
	errs = append(errs, validateJobSpec(job, path)...)
	if rules.Value(job.ManualSelector) {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), job.ManualSelector, []string{"nil", "false"}))
	}
	if job.Selector != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	return errs
}

// validateSchedule checks the cron expression. A time zone within it was never documented; objects that have one keep it.
func validateSchedule(cj, old *batchv1.CronJob, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	schedule := cj.Spec.Schedule
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	if !strings.Contains(schedule, "TZ") {
		return errs
	}
	switch {
	case cj.Spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	case old == nil || !strings.Contains(old.Spec.Schedule, "TZ"):
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return errs
}

func parseSchedule(schedule string) (err error) {
	// The parser panics when nothing follows the zone in "TZ=zone".
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	case strings.EqualFold(*zone, "Local"):
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, zone, err.Error())}
	}
	return nil
}
