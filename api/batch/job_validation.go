package batch

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api/core"
	"proa/api/rules"
)

// What an indexed job's status can hold bounds the number of its indexes that are in flight or failed.
const (
	parallelismLimit            = 100000
	completionsSoftLimit        = 100000
	parallelismAboveSoftLimit   = 10000
	failedIndexesLimit          = 100000
	failedIndexesAboveSoftLimit = 10000
)

func validateJob(job *batchv1.Job) field.ErrorList {
	errs := validateGeneratedSelector(job, true)
	errs = append(errs, validateJobSpec(&job.Spec, field.NewPath("spec"))...)
	errs = append(errs, validateJobSelector(&job.Spec, field.NewPath("spec"))...)
	if indexed(&job.Spec) && rules.Value(job.Spec.Completions) > 0 {
		last := fmt.Sprintf("%s-%d", job.Name, *job.Spec.Completions-1)
		for _, msg := range utilvalidation.IsDNS1123Label(last) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), job.Name, fmt.Sprintf("will not able to create pod with invalid DNS label: %s: %s", last, msg)))
		}
	}
	return errs
}

func indexed(spec *batchv1.JobSpec) bool {
	return rules.Value(spec.CompletionMode) == batchv1.IndexedCompletion
}

// validateGeneratedSelector checks that a selector the user did not claim as a manual one is what generateSelector
// made. Jobs from before the prefixed labels lack those on update.
func validateGeneratedSelector(job *batchv1.Job, prefixed bool) field.ErrorList {
	if rules.Value(job.Spec.ManualSelector) {
		return nil
	}
	if job.UID == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata", "uid"), "")}
	}
	var errs field.ErrorList
	path := field.NewPath("spec", "template", "metadata", "labels")
	want := map[string]string{"controller-uid": string(job.UID), "job-name": job.Name}
	names := []string{"controller-uid", "job-name"}
	if prefixed {
		want[batchv1.ControllerUidLabel], want[batchv1.JobNameLabel] = string(job.UID), job.Name
		names = append(names, batchv1.ControllerUidLabel, batchv1.JobNameLabel)
	}
	have := job.Spec.Template.Labels
	for _, name := range names {
		if value, ok := have[name]; !ok {
			errs = append(errs, field.Required(path.Key(name), fmt.Sprintf("must be '%s'", want[name])))
		} else if value != want[name] {
			errs = append(errs, field.Invalid(path.Key(name), value, fmt.Sprintf("must be '%s'", want[name])))
		}
	}
	generated := labels.Set{"controller-uid": string(job.UID), "job-name": job.Name,
		batchv1.ControllerUidLabel: string(job.UID), batchv1.JobNameLabel: job.Name}
	if selector, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && !selector.Matches(generated) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), job.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func validateJobSelector(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if spec.Selector == nil {
		return field.ErrorList{field.Required(path.Child("selector"), "")}
	}
	errs := metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))
	if selector, err := metav1.LabelSelectorAsSelector(spec.Selector); err == nil && !selector.Matches(labels.Set(spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobSpec checks a job's spec but for the selector, which jobs of cron jobs do not have yet.
func validateJobSpec(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value *int32
	}{
		{"parallelism", spec.Parallelism}, {"completions", spec.Completions}, {"backoffLimit", spec.BackoffLimit},
		{"ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", spec.BackoffLimitPerIndex},
		{"maxFailedIndexes", spec.MaxFailedIndexes},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), f.value)...)
	}
	if spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, validation.ValidateNonnegativeField(*spec.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	}
	errs = append(errs, validateManagedBy(spec.ManagedBy, path.Child("managedBy"))...)
	errs = append(errs, validateIndexes(spec, path)...)
	if spec.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(spec, path.Child("podFailurePolicy"))...)
	}
	if spec.SuccessPolicy != nil {
		if indexed(spec) {
			errs = append(errs, validateSuccessPolicy(spec, path.Child("successPolicy"))...)
		} else {
			errs = append(errs, field.Invalid(path.Child("successPolicy"), *spec.SuccessPolicy, "requires indexed completion mode"))
		}
	}
	errs = append(errs, validateReplacementPolicy(spec, path.Child("podReplacementPolicy"))...)
	return append(errs, validateJobTemplate(spec, path.Child("template"))...)
}

func validateJobTemplate(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := core.ValidatePodTemplate(&spec.Template, path)
	path = path.Child("spec", "restartPolicy")
	switch policy := spec.Template.Spec.RestartPolicy; policy {
	case "", corev1.RestartPolicyAlways:
		errs = append(errs, field.Required(path, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	case corev1.RestartPolicyNever:
	case corev1.RestartPolicyOnFailure:
		if spec.PodFailurePolicy != nil {
			errs = append(errs, field.Invalid(path, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever)))
		}
	default:
		errs = append(errs, field.NotSupported(path, policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	return errs
}

func validateManagedBy(name *string, path *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	errs := utilvalidation.IsDomainPrefixedPath(path, *name)
	if len(*name) > 63 {
		errs = append(errs, field.TooLong(path, *name, 63))
	}
	return errs
}

// validateIndexes checks what depends on the completion mode.
func validateIndexes(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if mode := spec.CompletionMode; mode != nil && *mode != batchv1.NonIndexedCompletion && *mode != batchv1.IndexedCompletion {
		errs = append(errs, field.NotSupported(path.Child("completionMode"), *mode,
			[]batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion}))
	}
	if spec.BackoffLimitPerIndex == nil && spec.MaxFailedIndexes != nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if !indexed(spec) {
		if spec.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *spec.BackoffLimitPerIndex, "requires indexed completion mode"))
		}
		if spec.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *spec.MaxFailedIndexes, "requires indexed completion mode"))
		}
		return errs
	}
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if n := rules.Value(spec.Parallelism); n > parallelismLimit {
		errs = append(errs, field.Invalid(path.Child("parallelism"), n, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", parallelismLimit)))
	}
	if n := spec.MaxFailedIndexes; n != nil {
		if spec.Completions != nil && *n > *spec.Completions {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, "must be less than or equal to completions"))
		}
		if *n > failedIndexesLimit {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *n, fmt.Sprintf("must be less than or equal to %d", failedIndexesLimit)))
		}
	}
	if rules.Value(spec.Completions) <= completionsSoftLimit || spec.BackoffLimitPerIndex == nil {
		return errs
	}
	const suffix = "when completions are above 100000 and used with backoff limit per index"
	if spec.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(path.Child("maxFailedIndexes"), fmt.Sprintf("must be specified when completions is above %d", completionsSoftLimit)))
	}
	if n := rules.Value(spec.Parallelism); n > parallelismAboveSoftLimit {
		errs = append(errs, field.Invalid(path.Child("parallelism"), n, fmt.Sprintf("must be less than or equal to %d %s", parallelismAboveSoftLimit, suffix)))
	}
	if n := rules.Value(spec.MaxFailedIndexes); n > failedIndexesAboveSoftLimit {
		errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), n, fmt.Sprintf("must be less than or equal to %d %s", failedIndexesAboveSoftLimit, suffix)))
	}
	return errs
}

func validateReplacementPolicy(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	policy := spec.PodReplacementPolicy
	if policy == nil || *policy == batchv1.Failed || *policy == batchv1.TerminatingOrFailed && spec.PodFailurePolicy == nil {
		return nil
	}
	supported := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
	if spec.PodFailurePolicy != nil {
		supported = supported[:1]
	}
	return field.ErrorList{field.NotSupported(path, *policy, supported)}
}

func validateJobUpdate(job, old *batchv1.Job) field.ErrorList {
	errs := validateGeneratedSelector(job, old.Spec.Template.Labels[batchv1.ControllerUidLabel] != "")
	path := field.NewPath("spec")
	errs = append(errs, validateJobSpec(&job.Spec, path)...)
	errs = append(errs, validateJobSelector(&job.Spec, path)...)
	errs = append(errs, validateCompletionsUpdate(&job.Spec, &old.Spec, path.Child("completions"))...)
	errs = append(errs, validation.ValidateImmutableField(job.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	errs = append(errs, validateTemplateUpdate(job, old, path.Child("template"))...)
	errs = append(errs, validation.ValidateImmutableField(job.Spec.CompletionMode, old.Spec.CompletionMode, path.Child("completionMode"))...)
	errs = append(errs, validation.ValidateImmutableField(job.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, path.Child("podFailurePolicy"))...)
	errs = append(errs, validation.ValidateImmutableField(job.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, validation.ValidateImmutableField(job.Spec.ManagedBy, old.Spec.ManagedBy, path.Child("managedBy"))...)
	return append(errs, validation.ValidateImmutableField(job.Spec.SuccessPolicy, old.Spec.SuccessPolicy, path.Child("successPolicy"))...)
}

// validateCompletionsUpdate lets indexed jobs be resized, completions and parallelism together.
func validateCompletionsUpdate(spec, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	if !indexed(spec) {
		return validation.ValidateImmutableField(spec.Completions, old.Completions, path)
	}
	if spec.Completions == nil || equality.Semantic.DeepEqual(spec.Completions, old.Completions) {
		return nil
	}
	if spec.Parallelism == nil || *spec.Completions != *spec.Parallelism {
		return field.ErrorList{field.Invalid(path, *spec.Completions, fmt.Sprintf("can only be modified in tandem with %s", path.Root().Child("parallelism")))}
	}
	return nil
}

// validateTemplateUpdate lets a queue controller choose where the pods of a suspended job that has not started may run.
func validateTemplateUpdate(job, old *batchv1.Job, path *field.Path) field.ErrorList {
	template := &job.Spec.Template
	if rules.Value(old.Spec.Suspend) && old.Status.StartTime == nil {
		t := template.DeepCopy()
		o := &old.Spec.Template
		switch {
		case o.Spec.Affinity == nil && t.Spec.Affinity != nil:
			t.Spec.Affinity.NodeAffinity = nil
			if *t.Spec.Affinity == (corev1.Affinity{}) {
				t.Spec.Affinity = nil
			}
		case o.Spec.Affinity != nil:
			if t.Spec.Affinity == nil {
				t.Spec.Affinity = &corev1.Affinity{}
			}
			t.Spec.Affinity.NodeAffinity = o.Spec.Affinity.NodeAffinity
		}
		t.Spec.NodeSelector = o.Spec.NodeSelector
		t.Spec.Tolerations = o.Spec.Tolerations
		t.Spec.SchedulingGates = o.Spec.SchedulingGates
		t.Labels = o.Labels
		t.Annotations = o.Annotations
		template = t
	}
	return validation.ValidateImmutableField(*template, old.Spec.Template, path)
}

func validateJobStatus(s, old *batchv1.JobStatus) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value *int32
	}{
		{"active", &s.Active}, {"succeeded", &s.Succeeded}, {"failed", &s.Failed}, {"ready", s.Ready}, {"terminating", s.Terminating},
	} {
		errs = append(errs, rules.NonNegative(path.Child(f.name), f.value)...)
	}
	if s.UncountedTerminatedPods != nil {
		path := path.Child("uncountedTerminatedPods")
		seen := map[string]bool{}
		for i, uid := range s.UncountedTerminatedPods.Succeeded {
			errs = append(errs, validateUncounted(string(uid), seen, path.Child("succeeded").Index(i))...)
		}
		for i, uid := range s.UncountedTerminatedPods.Failed {
			errs = append(errs, validateUncounted(string(uid), seen, path.Child("failed").Index(i))...)
		}
	}
	complete, failed := statusHas(s, batchv1.JobComplete), statusHas(s, batchv1.JobFailed)
	if complete && failed {
		errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{}, "cannot set Complete=True and Failed=true conditions"))
	}
	for _, kind := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if statusHas(old, kind) && !statusHas(s, kind) {
			errs = append(errs, field.Invalid(path.Child("conditions"), field.OmitValueType{}, fmt.Sprintf("cannot disable the terminal %s=True condition", kind)))
		}
	}
	if s.CompletionTime != nil && !complete {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, "cannot set completionTime when there is no Complete=True condition"))
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) {
		errs = append(errs, field.Invalid(path.Child("completionTime"), s.CompletionTime, "completionTime cannot be set before startTime"))
	}
	return errs
}

func validateUncounted(uid string, seen map[string]bool, path *field.Path) field.ErrorList {
	switch {
	case uid == "":
		return field.ErrorList{field.Invalid(path, uid, "must not be empty")}
	case seen[uid]:
		return field.ErrorList{field.Duplicate(path, uid)}
	}
	seen[uid] = true
	return nil
}

func statusHas(s *batchv1.JobStatus, kind batchv1.JobConditionType) bool {
	return hasCondition(&batchv1.Job{Status: *s}, kind)
}

// countIndexes returns how many indexes a list like "1,3-5" names, all of which must be below completions, in order.
func countIndexes(list string, completions int32) (int32, error) {
	var count, last int32 = 0, -1
	for item := range strings.SplitSeq(list, ",") {
		first, end, isRange := strings.Cut(item, "-")
		from, err := indexNumber(first)
		if err != nil {
			return 0, err
		}
		to := from
		if isRange {
			if to, err = indexNumber(end); err != nil {
				return 0, err
			}
			if from >= to {
				return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", from, to)
			}
		}
		if last >= from {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, from)
		}
		if to >= completions {
			return 0, fmt.Errorf("too large index: %q", strconv.Itoa(int(to)))
		}
		last = to
		count += to - from + 1
	}
	return count, nil
}

func indexNumber(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", s)
	}
	return int32(n), nil
}
