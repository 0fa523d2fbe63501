package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Of the nodes where preemption could help, this share is tried, and at least this many.
const (
	minCandidates       = 100
	candidatePercentage = 10
)

const notEligible = "not eligible"

// candidate is a node and the pods that would have to leave it.
type candidate struct {
	node       *nodeInfo
	victims    []*podInfo // the most important first
	violations int        // of disruption budgets
}

// preempt looks for a node where the pod fits once less important pods are gone. It returns the best, or why there is none.
// The caller holds mu.
func (s *Scheduler) preempt(c *cycle, rejections map[*nodeInfo]*status, nodes int) (*candidate, string) {
	pod := c.pod.pod
	if pod.Spec.PreemptionPolicy != nil && *pod.Spec.PreemptionPolicy == corev1.PreemptNever {
		return nil, notEligible + " due to preemptionPolicy=Never."
	}
	if n := s.state.nodes[c.pod.nominated]; n != nil && (rejections[n] == nil || rejections[n].code != unresolvable) {
		for _, p := range n.pods {
			if p.pod.DeletionTimestamp != nil && p.priority() < c.pod.priority() && disruptedByScheduler(p.pod) {
				return nil, notEligible + " due to a terminating pod on the nominated node."
			}
		}
	}
	notHelpful := reject("", unresolvable, "Preemption is not helpful for scheduling")
	reasons := map[*nodeInfo]*status{}
	var hopeful []*nodeInfo
	for n, r := range rejections {
		if r.code == unschedulable {
			hopeful = append(hopeful, n)
		} else {
			reasons[n] = notHelpful
		}
	}
	slices.SortFunc(hopeful, func(a, b *nodeInfo) int { return strings.Compare(a.name, b.name) })
	limit := min(max(len(hopeful)*candidatePercentage/100, minCandidates), len(hopeful))
	var best *candidate
	found, offset := 0, 0
	if len(hopeful) > 0 {
		offset = s.random.IntN(len(hopeful))
	}
	for i := range hopeful {
		n := hopeful[(offset+i)%len(hopeful)]
		x, r := s.victims(c, n)
		if r != nil {
			reasons[n] = r
			continue
		}
		if best == nil || x.betterThan(best) {
			best = x
		}
		if found++; found >= limit {
			break
		}
	}
	if best == nil {
		return nil, fitMessage(nodes, reasons)
	}
	return best, ""
}

func disruptedByScheduler(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// victims finds the fewest pods whose absence makes room on n.
func (s *Scheduler) victims(c *cycle, n *nodeInfo) (*candidate, *status) {
	trial := n.clone()
	move := func(p *podInfo, by int) {
		if by < 0 {
			trial.remove(p)
		} else {
			trial.add(p)
		}
		for _, f := range c.filters {
			if f, ok := f.(podFilter); ok {
				f.changePod(trial, p, by)
			}
		}
	}
	var lower []*podInfo
	for _, p := range n.pods {
		if p.priority() < c.pod.priority() {
			lower = append(lower, p)
		}
	}
	if len(lower) == 0 {
		return nil, reject("", unresolvable, "No preemption victims found for incoming pod")
	}
	for _, p := range lower {
		move(p, -1)
	}
	x := &candidate{node: n}
	defer func() {
		for _, p := range x.victims {
			move(p, 1) // the filters' counts are the cycle's
		}
	}()
	if r := c.checkNominated(trial); r != nil {
		x.victims = lower
		return nil, r
	}
	// The most important are let stay first, and before all others those that a budget protects.
	slices.SortFunc(lower, byImportance)
	violating := s.violating(lower)
	for _, protected := range []bool{true, false} {
		for _, p := range lower {
			if violating[p] != protected {
				continue
			}
			move(p, 1)
			if c.checkNominated(trial) == nil {
				continue
			}
			move(p, -1)
			x.victims = append(x.victims, p)
			if protected {
				x.violations++
			}
		}
	}
	slices.SortFunc(x.victims, byImportance)
	if len(x.victims) == 0 {
		return nil, reject("", unresolvable, "No preemption victims found for incoming pod")
	}
	return x, nil
}

// byImportance puts higher priority first, and of equals the pod that has run longer.
func byImportance(a, b *podInfo) int {
	return cmp.Or(cmp.Compare(b.priority(), a.priority()), started(a).Compare(started(b)))
}

func started(p *podInfo) time.Time {
	if p.pod.Status.StartTime != nil {
		return p.pod.Status.StartTime.Time
	}
	return time.Now() // about to
}

// violating are the pods whose loss a disruption budget does not allow.
func (s *Scheduler) violating(pods []*podInfo) map[*podInfo]bool {
	out := map[*podInfo]bool{}
	left := map[*policyv1.PodDisruptionBudget]int32{}
	for _, p := range pods {
		if len(p.pod.Labels) == 0 {
			continue
		}
		for _, b := range s.state.budgets[p.pod.Namespace] {
			if selector := selectorOf(b.Spec.Selector); selector.Empty() || !selector.Matches(labels.Set(p.pod.Labels)) {
				continue
			}
			if _, processed := b.Status.DisruptedPods[p.pod.Name]; processed {
				continue
			}
			if _, known := left[b]; !known {
				left[b] = b.Status.DisruptionsAllowed
			}
			if left[b]--; left[b] < 0 {
				out[p] = true
			}
		}
	}
	return out
}

// betterThan compares: fewer budgets violated, a less important first victim, less priority in sum, fewer victims, and
// victims that started later.
func (x *candidate) betterThan(y *candidate) bool {
	sum := func(c *candidate) (n int64) {
		for _, v := range c.victims {
			n += int64(v.priority()) + 1<<31
		}
		return n
	}
	// Of the most important victims, the one that has run longest stands first.
	return cmp.Or(
		cmp.Compare(x.violations, y.violations),
		cmp.Compare(x.victims[0].priority(), y.victims[0].priority()),
		cmp.Compare(sum(x), sum(y)),
		cmp.Compare(len(x.victims), len(y.victims)),
		started(y.victims[0]).Compare(started(x.victims[0])),
	) < 0
}

// checkNominated runs the filters on a node, also as it will be once the pods that preemption made room for have come.
func (c *cycle) checkNominated(n *nodeInfo) *status {
	coming := c.nominees(n.name)
	if len(coming) == 0 {
		return c.check(n)
	}
	trial := n.clone()
	move := func(by int) {
		for _, p := range coming {
			if by > 0 {
				trial.add(p)
			}
			for _, f := range c.filters {
				if f, ok := f.(podFilter); ok {
					f.changePod(trial, p, by)
				}
			}
		}
	}
	move(1)
	r := c.check(trial)
	move(-1)
	if r != nil {
		return r
	}
	return c.check(n)
}

// nominees are the other pods, not less important than this one, that are to come to a node.
func (c *cycle) nominees(node string) (out []*podInfo) {
	for _, p := range c.nominated[node] {
		if p.pod.UID != c.pod.pod.UID && p.priority() >= c.pod.priority() {
			out = append(out, p)
		}
	}
	return out
}

// nominate notes that p is to come to a node, "" for none any more.
func (s *state) nominate(p *podInfo, node string) {
	if p.nominated != "" {
		delete(s.nominated[p.nominated], p.pod.UID)
		if len(s.nominated[p.nominated]) == 0 {
			delete(s.nominated, p.nominated)
		}
	}
	p.nominated = node
	if node == "" {
		return
	}
	if s.nominated[node] == nil {
		s.nominated[node] = map[types.UID]*podInfo{}
	}
	s.nominated[node][p.pod.UID] = p
}

// outbid takes the nomination from less important pods for the same node, and returns them: their room is gone.
func (s *state) outbid(p *podInfo, node string) (losers []*podInfo) {
	for _, o := range slices.Collect(maps.Values(s.nominated[node])) {
		if o.pod.UID != p.pod.UID && o.priority() < p.priority() {
			s.nominate(o, "")
			losers = append(losers, o)
		}
	}
	return losers
}

// eviction is what preemption asks of the API, in objects as they were when it was decided.
type eviction struct {
	node    string
	victims []*corev1.Pod
	// outbid are pods that were to come to the node before.
	outbid []*corev1.Pod
}

func podsOf(list []*podInfo) (pods []*corev1.Pod) {
	for _, p := range list {
		pods = append(pods, p.pod)
	}
	return pods
}

// evict deletes the victims, and says so to them and to those who ask why.
func (s *Scheduler) evict(ctx context.Context, pod *corev1.Pod, x *eviction) {
	for _, o := range x.outbid {
		next := withOwnStatus(o)
		next.Status.NominatedNodeName = ""
		s.write(ctx, o, next)
	}
	for _, v := range x.victims {
		if v.DeletionTimestamp != nil {
			continue
		}
		if err := s.evictOne(ctx, v); err != nil {
			if !apierrors.IsNotFound(err) && ctx.Err() == nil {
				s.config.Log.Error("victim not deleted", "pod", pod.Namespace+"/"+pod.Name, "victim", v.Namespace+"/"+v.Name, "err", err)
			}
			continue
		}
		s.event(v, corev1.EventTypeNormal, "Preempted", fmt.Sprintf("Preempted by pod %s on node %s", pod.UID, x.node))
	}
}

func (s *Scheduler) evictOne(ctx context.Context, victim *corev1.Pod) error {
	next := withOwnStatus(victim)
	next.Status.Conditions = append(
		slices.DeleteFunc(next.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }),
		corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message:            s.config.Name + ": preempting to accommodate a higher priority pod",
			LastTransitionTime: metav1.Now(),
		})
	if err := s.writeStatus(ctx, victim, next); err != nil {
		return err
	}
	return s.pods.Delete(ctx, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
}

// writeStatus writes the status of next, a changed copy of old.
func (s *Scheduler) writeStatus(ctx context.Context, old, next *corev1.Pod) error {
	if equality.Semantic.DeepEqual(old.Status, next.Status) {
		return nil
	}
	// Nearly always the pod is still as it was. Then there are no differences to be found out and applied.
	_, err := s.pods.UpdateStatus(ctx, next)
	if apierrors.IsConflict(err) {
		return s.patchStatus(ctx, old, next)
	}
	return err
}

// patchStatus writes the differences between two versions of a pod's status. The uid keeps the patch from meeting another
// pod of the same name.
func (s *Scheduler) patchStatus(ctx context.Context, old, next *corev1.Pod) error {
	type document struct {
		Metadata struct {
			UID types.UID `json:"uid,omitempty"`
		} `json:"metadata"`
		Status corev1.PodStatus `json:"status"`
	}
	from, to := document{Status: old.Status}, document{Status: next.Status}
	to.Metadata.UID = old.UID
	before, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	after, err := json.Marshal(to)
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return fmt.Errorf("compare status: %w", err)
	}
	_, err = s.pods.Patch(ctx, old.Namespace, old.Name, "status", types.StrategicMergePatchType, patch)
	return err
}
