package controllers

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ending reports whether the Job's fate is sealed and its pods are to go.
func (r *jobRun) ending() bool {
	return jobCondition(r.Job, batchv1.JobFailureTarget) != nil || jobCondition(r.Job, batchv1.JobSuccessCriteriaMet) != nil
}

func (r *jobRun) setCondition(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) {
	now := metav1.Now()
	next := batchv1.JobCondition{Type: kind, Status: status, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
	for i := range r.Status.Conditions {
		if c := &r.Status.Conditions[i]; c.Type == kind {
			if c.Status != status || c.Reason != reason || c.Message != message {
				*c = next
			}
			return
		}
	}
	r.Status.Conditions = append(r.Status.Conditions, next)
}

// decide sets the conditions: suspended, doomed, met, and, once no pod is left, ended. It says when a deadline is due.
func (c *jobs) decide(r *jobRun) time.Duration {
	var wait time.Duration
	if !r.ending() {
		reason, message := r.verdict()
		switch {
		case reason != "":
			r.setCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, reason, message)
		case r.met():
		case r.Spec.ActiveDeadlineSeconds != nil && r.Status.StartTime != nil && !ptr.Deref(r.Spec.Suspend, false):
			left := time.Until(r.Status.StartTime.Add(time.Duration(*r.Spec.ActiveDeadlineSeconds) * time.Second))
			if left > 0 {
				wait = left
			} else {
				r.setCondition(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline")
			}
		}
	}
	if r.ending() {
		c.finish(r)
		return 0
	}
	c.suspension(r)
	return wait
}

// suspension keeps the Suspended condition in step with the spec.
func (c *jobs) suspension(r *jobRun) {
	suspended := jobCondition(r.Job, batchv1.JobSuspended) != nil
	switch want := ptr.Deref(r.Spec.Suspend, false); {
	case want && !suspended:
		r.setCondition(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")
		r.Status.StartTime = nil
		c.Events.Event(r.Job, corev1.EventTypeNormal, "Suspended", "Job suspended")
	case !want && suspended:
		r.setCondition(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")
		r.Status.StartTime = ptr.To(metav1.Now())
		c.Events.Event(r.Job, corev1.EventTypeNormal, "Resumed", "Job resumed")
	}
}

// verdict says why the Job has failed, "" if it has not.
func (r *jobRun) verdict() (reason, message string) {
	if r.policyFailure != "" {
		return batchv1.JobReasonPodFailurePolicy, r.policyFailure
	}
	if r.Spec.BackoffLimitPerIndex != nil {
		failed := r.failedIndexes.len()
		if r.Spec.MaxFailedIndexes != nil && failed > int(*r.Spec.MaxFailedIndexes) {
			return batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
		}
		if failed > 0 && failed+r.succeededIndexes.len() >= int(*r.Spec.Completions) {
			return batchv1.JobReasonFailedIndexes, "Job has failed indexes"
		}
		return "", ""
	}
	limit := ptr.Deref(r.Spec.BackoffLimit, 6)
	if r.failed > limit || r.restarted(limit) {
		return batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	}
	return "", ""
}

// restarted reports whether pods that restart their containers in place have used up the limit.
func (r *jobRun) restarted(limit int32) bool {
	if r.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	total := int32(0)
	for _, p := range r.active {
		if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			total += s.RestartCount
		}
	}
	if limit == 0 {
		return total > 0
	}
	return total >= limit && total > 0
}

// met sets SuccessCriteriaMet when the Job has what it wanted.
func (r *jobRun) met() bool {
	set := func(reason, message string) bool {
		r.setCondition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, reason, message)
		return true
	}
	if r.Spec.SuccessPolicy != nil && r.indexed() {
		for i, rule := range r.Spec.SuccessPolicy.Rules {
			counted := r.succeededIndexes
			if rule.SucceededIndexes != nil {
				want := parseIntervals(*rule.SucceededIndexes)
				counted = counted.intersect(want)
				if rule.SucceededCount == nil && counted.len() == want.len() {
					return set(batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", i))
				}
			}
			if rule.SucceededCount != nil && counted.len() >= int(*rule.SucceededCount) {
				return set(batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", i))
			}
		}
	}
	if r.Spec.Completions == nil {
		if r.succeeded > 0 && len(r.active) == 0 {
			return set(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
		}
		return false
	}
	if r.succeeded >= *r.Spec.Completions && !ptr.Deref(r.Spec.Suspend, false) {
		return set(batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods")
	}
	return false
}

// finish turns a sealed fate into the end, once no pod of the Job is left running.
func (c *jobs) finish(r *jobRun) {
	if len(r.active) > 0 {
		return // they are deleted first
	}
	for p := range c.byOwner.Lookup(string(r.UID)) {
		if !podEnded(p) {
			return
		}
	}
	if cond := jobCondition(r.Job, batchv1.JobFailureTarget); cond != nil {
		r.setCondition(batchv1.JobFailed, corev1.ConditionTrue, cond.Reason, cond.Message)
		return
	}
	cond := jobCondition(r.Job, batchv1.JobSuccessCriteriaMet)
	r.setCondition(batchv1.JobComplete, corev1.ConditionTrue, cond.Reason, cond.Message)
	r.Status.CompletionTime = ptr.To(metav1.Now())
}

// applyFailurePolicy looks up what the pod failure policy says about a failed pod.
func (r *jobRun) applyFailurePolicy(p *corev1.Pod) {
	if r.Spec.PodFailurePolicy == nil || p.Status.Phase != corev1.PodFailed {
		return
	}
	for i, rule := range r.Spec.PodFailurePolicy.Rules {
		var why string
		switch {
		case rule.OnExitCodes != nil:
			why = matchExitCodes(rule.OnExitCodes, p)
		default:
			why = matchConditions(rule.OnPodConditions, p)
		}
		if why == "" {
			continue
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore:
			r.ignored[p.UID] = true
		case batchv1.PodFailurePolicyActionFailJob:
			if r.policyFailure == "" {
				r.policyFailure = fmt.Sprintf("%s matching FailJob rule at index %d", why, i)
			}
		case batchv1.PodFailurePolicyActionFailIndex:
			if r.Spec.BackoffLimitPerIndex != nil {
				r.policyIndexes[podIndex(p)] = true
			}
		}
		return
	}
}

func matchExitCodes(rule *batchv1.PodFailurePolicyOnExitCodesRequirement, p *corev1.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		t := s.State.Terminated
		if t == nil || t.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != s.Name {
			continue
		}
		if slices.Contains(rule.Values, t.ExitCode) == (rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn) {
			return fmt.Sprintf("Container %s for pod %s/%s failed with exit code %d", s.Name, p.Namespace, p.Name, t.ExitCode)
		}
	}
	return ""
}

func matchConditions(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, p *corev1.Pod) string {
	for _, want := range patterns {
		for _, c := range p.Status.Conditions {
			if c.Type == want.Type && c.Status == want.Status {
				return fmt.Sprintf("Pod %s/%s has condition %s", p.Namespace, p.Name, c.Type)
			}
		}
	}
	return ""
}
