package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		text := fmt.Sprintf("0/%d nodes are available: %s. preemption: 0/%d nodes are available: %d Preemption is not helpful for scheduling.",
			len(all), strings.Join(rejected.reasons, ", "), len(all), len(all))
		return decision{reason: corev1.PodReasonUnschedulable, message: text, rejectedBy: c.rejectedBy}
	}
	if n := s.state.nodes[p.nominated]; n != nil && n.node != nil && (c.only == nil || c.only.Has(n.name)) && c.checkNominated(n) == nil {
		return decision{node: n, volumes: c.planVolumes(n)} // the room that preemption made
	}
	feasible, rejections := s.search(c, all)
	if len(feasible) > 0 {
		n := c.choose(s.plugins, feasible, s.random)
		return decision{node: n, volumes: c.planVolumes(n)}
	}
	d := decision{reason: corev1.PodReasonUnschedulable, message: fitMessage(len(all), rejections), rejectedBy: c.rejectedBy}
	x, why := s.preempt(c, rejections, len(all))
	if x == nil {
		d.message += " preemption: " + why
		if !strings.HasPrefix(why, notEligible) {
			s.state.nominate(p, "")
		}
		d.nominated = p.nominated
		return d
	}
	d.outbid = s.state.outbid(p, x.node.name)
	d.evict = &eviction{x.node.name, podsOf(x.victims), podsOf(d.outbid)}
	s.state.nominate(p, x.node.name)
	d.nominated = p.nominated
	return d
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
				if r := c.checkNominated(n); r != nil {
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
		if r := c.checkNominated(n); r != nil {
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

// writeFailure tells the user why a pod has no node, and makes room for it.
func (s *Scheduler) writeFailure(ctx context.Context, pod *corev1.Pod, d decision) {
	if d.evict != nil {
		s.evict(ctx, pod, d.evict)
	}
	s.event(pod, corev1.EventTypeWarning, "FailedScheduling", d.message)
	s.writeCondition(ctx, pod, d.reason, d.message, d.nominated)
}

// writeCondition sets PodScheduled to False.
func (s *Scheduler) writeCondition(ctx context.Context, pod *corev1.Pod, reason, message, nominated string) {
	next := withOwnStatus(pod)
	next.Status.NominatedNodeName = nominated
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}
	if i := slices.IndexFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }); i >= 0 {
		old := &next.Status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
	} else {
		next.Status.Conditions = append(next.Status.Conditions, c)
	}
	s.write(ctx, pod, next)
}

// withOwnStatus is pod with a status that can be changed.
func withOwnStatus(pod *corev1.Pod) *corev1.Pod {
	next := *pod
	pod.Status.DeepCopyInto(&next.Status)
	return &next
}

// write stores a pod's status, and logs what goes wrong unless the pod is gone.
func (s *Scheduler) write(ctx context.Context, old, next *corev1.Pod) {
	if err := s.writeStatus(ctx, old, next); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		s.config.Log.Error("pod status not written", "pod", old.Namespace+"/"+old.Name, "err", err)
	}
}
