package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// indexPod makes a pod the one of a completion index: name, annotation, label, host name and environment.
func (r *jobRun) indexPod(pod *corev1.Pod, index int) {
	text := strconv.Itoa(index)
	pod.GenerateName = fmt.Sprintf("%s-%d-", r.Name, index)
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", r.Name, index)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = text
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = text
	if r.Spec.BackoffLimitPerIndex != nil {
		pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(r.indexFailures(index))
	}
	env := corev1.EnvVar{Name: "JOB_COMPLETION_INDEX", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				list[i].Env = append(list[i].Env, env)
			}
		}
	}
}

// perIndex keeps one active pod per index that still has to be done; the others are superfluous.
func (r *jobRun) perIndex() (keep, superfluous []*corev1.Pod) {
	list := slices.Clone(r.active)
	deletionOrder(list)
	slices.Reverse(list) // the best first
	taken := map[int]bool{}
	for _, p := range list {
		i := podIndex(p)
		if i < 0 || i >= int(*r.Spec.Completions) || taken[i] || r.succeededIndexes.has(i) || r.failedIndexes.has(i) {
			superfluous = append(superfluous, p)
			continue
		}
		taken[i] = true
		keep = append(keep, p)
	}
	return keep, superfluous
}

// createIndexed makes pods for the lowest indexes that have none.
func (c *jobs) createIndexed(ctx context.Context, r *jobRun, n int) (time.Duration, error) {
	busy := map[int]bool{}
	for _, p := range r.active {
		busy[podIndex(p)] = true
	}
	if r.Spec.PodReplacementPolicy != nil && *r.Spec.PodReplacementPolicy == batchv1.Failed {
		for _, p := range r.pods {
			if !podEnded(p) {
				busy[podIndex(p)] = true
			}
		}
	}
	var wait time.Duration
	var indexes []int
	for i := 0; i < int(*r.Spec.Completions) && len(indexes) < n; i++ {
		if busy[i] || r.succeededIndexes.has(i) || r.failedIndexes.has(i) {
			continue
		}
		if r.Spec.BackoffLimitPerIndex != nil {
			if left := r.indexBackoff(i); left > 0 {
				wait = soonest(wait, left)
				continue
			}
		}
		indexes = append(indexes, i)
	}
	_, err := slowStart(len(indexes), func(i int) error { return c.createPod(ctx, r, indexes[i]) })
	return wait, err
}

// indexFailures counts the failures of an index: those its last pod was made with, and that pod's own.
func (r *jobRun) indexFailures(index int) int {
	n := 0
	for _, p := range r.pods {
		if podIndex(p) != index || !podEnded(p) && p.DeletionTimestamp == nil || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		before, err := strconv.Atoi(p.Annotations[batchv1.JobIndexFailureCountAnnotation])
		if err != nil {
			before = 0
		}
		if !r.ignored[p.UID] {
			before++
		}
		n = max(n, before)
	}
	return n
}

func (r *jobRun) indexBackoff(index int) time.Duration {
	var last time.Time
	for _, p := range r.pods {
		if podIndex(p) == index && p.Status.Phase == corev1.PodFailed {
			if at := endTime(p); at.After(last) {
				last = at
			}
		}
	}
	return backoffLeft(r.indexFailures(index), last)
}

// failIndexes gives up the indexes that failed too often or by policy.
func (r *jobRun) failIndexes() {
	if r.Spec.BackoffLimitPerIndex == nil {
		return
	}
	for _, p := range r.fresh {
		i := podIndex(p)
		if i < 0 || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if r.policyIndexes[i] || r.indexFailures(i) > int(ptr.Deref(r.Spec.BackoffLimitPerIndex, 0)) {
			r.failedIndexes = r.failedIndexes.add(i)
		}
	}
}

// intervals is a set of indexes, as sorted, disjoint, closed ranges. Its text form is that of completedIndexes: "0-2,5".
type intervals [][2]int

func parseIntervals(s string) intervals {
	var out intervals
	for part := range strings.SplitSeq(s, ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		out = append(out, [2]int{a, b})
	}
	return out
}

func (s intervals) String() string {
	var parts []string
	for _, r := range s {
		switch {
		case r[0] == r[1]:
			parts = append(parts, strconv.Itoa(r[0]))
		case r[0]+1 == r[1]:
			parts = append(parts, strconv.Itoa(r[0]), strconv.Itoa(r[1]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", r[0], r[1]))
		}
	}
	return strings.Join(parts, ",")
}

func (s intervals) has(n int) bool {
	return slices.ContainsFunc(s, func(r [2]int) bool { return r[0] <= n && n <= r[1] })
}

func (s intervals) len() int {
	n := 0
	for _, r := range s {
		n += r[1] - r[0] + 1
	}
	return n
}

// add returns the set with one more index.
func (s intervals) add(n int) intervals {
	if s.has(n) {
		return s
	}
	out := append(slices.Clone(s), [2]int{n, n})
	slices.SortFunc(out, func(a, b [2]int) int { return a[0] - b[0] })
	merged := out[:1]
	for _, r := range out[1:] {
		if last := &merged[len(merged)-1]; last[1]+1 == r[0] {
			last[1] = r[1]
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

func (s intervals) intersect(other intervals) intervals {
	var out intervals
	for _, r := range s {
		for n := r[0]; n <= r[1]; n++ {
			if other.has(n) {
				out = out.add(n)
			}
		}
	}
	return out
}
