package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Of many nodes only some are looked at: minFeasible of them at least, and a share that shrinks from a half to a
// twentieth as the cluster grows.
const (
	minFeasible   = 100
	minPercentage = 5
)

func feasibleWanted(nodes int) int {
	if nodes < minFeasible {
		return nodes
	}
	percentage := max(50-nodes/125, minPercentage)
	return max(nodes*percentage/100, minFeasible)
}

// decide finds a node for a pod. The caller holds mu.
func (s *Scheduler) decide(p *podInfo) decision {
	c := &cycle{state: s.state, pod: p, rejectedBy: sets.Set[string]{}}
	all := s.state.list()
	if len(all) == 0 {
		return decision{reason: corev1.PodReasonUnschedulable, message: "no nodes available to schedule pods", rejectedBy: sets.New(nodeUnschedulableName)}
	}
	if rejected := c.prepare(s.plugins); rejected != nil {
		if rejected.code == failed {
			return decision{reason: corev1.PodReasonSchedulerError, message: strings.Join(rejected.reasons, ", ")}
		}
		c.rejectedBy.Insert(rejected.plugin)
		text := fmt.Sprintf("0/%d nodes are available: %s.", len(all), strings.Join(rejected.reasons, ", "))
		return decision{reason: corev1.PodReasonUnschedulable, message: text, rejectedBy: c.rejectedBy}
	}
	feasible, rejections := s.search(c, all)
	if len(feasible) > 0 {
		return decision{node: c.choose(s.plugins, feasible, s.random)}
	}
	return decision{reason: corev1.PodReasonUnschedulable, message: fitMessage(len(all), rejections), rejectedBy: c.rejectedBy}
}

// search looks for enough feasible nodes, beginning where the last search ended.
func (s *Scheduler) search(c *cycle, all []*nodeInfo) (feasible []*nodeInfo, rejections map[*nodeInfo]*status) {
	note := func(n *nodeInfo, r *status) {
		if rejections == nil {
			rejections = map[*nodeInfo]*status{}
		}
		rejections[n] = r
		c.rejectedBy.Insert(r.plugin)
	}
	if c.only != nil {
		absent := reject(c.narrowedBy[0], unresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", c.narrowedBy))
		for name := range c.only {
			if n := s.state.nodes[name]; n != nil && n.node != nil {
				if r := c.check(n); r != nil {
					note(n, r)
				} else {
					feasible = append(feasible, n)
				}
			}
		}
		if len(feasible) == 0 {
			for _, n := range all {
				if !c.only.Has(n.name) {
					note(n, absent)
				}
			}
		}
		return feasible, rejections
	}
	wanted := feasibleWanted(len(all))
	feasible = make([]*nodeInfo, 0, wanted)
	seen := 0
	for ; seen < len(all) && len(feasible) < wanted; seen++ {
		n := all[(s.start+seen)%len(all)]
		if r := c.check(n); r != nil {
			note(n, r)
		} else {
			feasible = append(feasible, n)
		}
	}
	s.start = (s.start + seen) % len(all)
	return feasible, rejections
}

// fitMessage counts the reasons.
func fitMessage(nodes int, rejections map[*nodeInfo]*status) string {
	counts := map[string]int{}
	for _, r := range rejections {
		for _, reason := range r.reasons {
			counts[reason]++
		}
	}
	parts := make([]string, 0, len(counts))
	for reason, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(parts)
	text := fmt.Sprintf("0/%d nodes are available", nodes)
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text + "."
}

// writeFailure tells the user why a pod has no node.
func (s *Scheduler) writeFailure(ctx context.Context, pod *corev1.Pod, d decision) {
	s.event(pod, corev1.EventTypeWarning, "FailedScheduling", d.message)
	s.writeCondition(ctx, pod, d.reason, d.message, d.nominated)
}

// report writes a condition in the background.
func (s *Scheduler) report(pod *corev1.Pod, reason, message, nominated string) {
	s.writes.Go(func() { s.writeCondition(context.Background(), pod, reason, message, nominated) })
}

// writeCondition sets PodScheduled to False, unless it says so already.
func (s *Scheduler) writeCondition(ctx context.Context, pod *corev1.Pod, reason, message, nominated string) {
	now := metav1.NewTime(time.Now())
	condition := map[string]any{
		"type": corev1.PodScheduled, "status": corev1.ConditionFalse, "reason": reason, "message": message,
		"lastProbeTime": nil, "lastTransitionTime": now,
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i >= 0 && pod.Status.Conditions[i].Status == corev1.ConditionFalse {
		old := pod.Status.Conditions[i]
		if old.Reason == reason && old.Message == message && (nominated == "" || nominated == pod.Status.NominatedNodeName) {
			return
		}
		condition["lastTransitionTime"] = old.LastTransitionTime
	}
	status := map[string]any{"conditions": []any{condition}}
	if nominated != "" {
		status["nominatedNodeName"] = nominated
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		s.config.Log.Error("pod condition not encoded", "err", err)
		return
	}
	_, err = s.pods.Patch(ctx, pod.Namespace, pod.Name, "status", types.StrategicMergePatchType, patch)
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		s.config.Log.Error("pod condition not written", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}
