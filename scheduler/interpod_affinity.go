package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa/client"
)

const interPodAffinityName = "InterPodAffinity"

// hardPodAffinityWeight is how much the required affinity of a placed pod counts when nodes are rated for one that it
// wants near.
const hardPodAffinityWeight = 1

// interPodAffinity places pods near to, or away from, other pods.
type interPodAffinity struct{}

func (interPodAffinity) name() string { return interPodAffinityName }

// domainCounts are numbers by topology key and value.
type domainCounts map[string]map[string]int64

func (d domainCounts) add(n *nodeInfo, key string, by int64) {
	value, ok := n.node.Labels[key]
	if !ok {
		return
	}
	if d[key] == nil {
		d[key] = map[string]int64{}
	}
	d[key][value] += by
	if d[key][value] == 0 {
		delete(d[key], value)
	}
}

// on sums up what counts for a node.
func (d domainCounts) on(n *nodeInfo) (sum int64) {
	for key, values := range d {
		if value, ok := n.node.Labels[key]; ok {
			sum += values[value]
		}
	}
	return sum
}

type interPodFilter struct {
	state *state
	pod   *podInfo
	// near counts the pods that match all required affinity terms, away those that match an anti-affinity term, refused
	// the pods whose own anti-affinity means the pod.
	near, away, refused domainCounts
	// self: the pod matches its own affinity terms, and may be the first of its group.
	self bool

	notNear, notAway, notWanted *status
}

func (interPodAffinity) preFilter(c *cycle) (filter, *status) {
	terms := c.pod.terms
	if terms == nil || len(terms.near) == 0 && len(terms.away) == 0 {
		if len(c.withTerms) == 0 {
			return nil, nil
		}
		terms = &affinityTerms{}
	}
	f := &interPodFilter{
		state: c.state, pod: c.pod, near: domainCounts{}, away: domainCounts{}, refused: domainCounts{},
		notNear:   reject(interPodAffinityName, unresolvable, "node(s) didn't match pod affinity rules"),
		notAway:   reject(interPodAffinityName, unschedulable, "node(s) didn't match pod anti-affinity rules"),
		notWanted: reject(interPodAffinityName, unschedulable, "node(s) didn't satisfy existing pods anti-affinity rules"),
	}
	others := c.withTerms
	if len(terms.near) > 0 || len(terms.away) > 0 {
		others = c.pods
	}
	for _, p := range others {
		if n := c.nodes[p.node]; n != nil && n.node != nil {
			f.changePod(n, p, 1)
		}
	}
	if len(terms.near) == 0 && len(terms.away) == 0 && len(f.refused) == 0 {
		return nil, nil
	}
	f.self = matchesAll(c.state, terms.near, c.pod.pod)
	return f, nil
}

func matchesAll(s *state, terms []term, pod *corev1.Pod) bool {
	for i := range terms {
		if !terms[i].matches(s, pod) {
			return false
		}
	}
	return true
}

func (f *interPodFilter) changePod(n *nodeInfo, p *podInfo, by int) {
	if p.pod.UID == f.pod.pod.UID {
		return
	}
	if t := f.pod.terms; t != nil {
		if len(t.near) > 0 && matchesAll(f.state, t.near, p.pod) {
			for i := range t.near {
				f.near.add(n, t.near[i].key, int64(by))
			}
		}
		for i := range t.away {
			if t.away[i].matches(f.state, p.pod) {
				f.away.add(n, t.away[i].key, int64(by))
			}
		}
	}
	if p.terms != nil {
		for i := range p.terms.away {
			if p.terms.away[i].matches(f.state, f.pod.pod) {
				f.refused.add(n, p.terms.away[i].key, int64(by))
			}
		}
	}
}

func (f *interPodFilter) filter(n *nodeInfo) *status {
	if t := f.pod.terms; t != nil {
		alone := true
		for _, values := range f.near {
			alone = alone && len(values) == 0
		}
		for i := range t.near {
			value, ok := n.node.Labels[t.near[i].key]
			if !ok || f.near[t.near[i].key][value] == 0 && !(alone && f.self) {
				return f.notNear
			}
		}
		for i := range t.away {
			if value, ok := n.node.Labels[t.away[i].key]; ok && f.away[t.away[i].key][value] > 0 {
				return f.notAway
			}
		}
	}
	if f.refused.on(n) > 0 {
		return f.notWanted
	}
	return nil
}

type interPodScorer struct{ counts domainCounts }

func (interPodAffinity) preScore(c *cycle, nodes []*nodeInfo) scorer {
	t := c.pod.terms
	prefers := t != nil && (len(t.preferNear) > 0 || len(t.preferAway) > 0)
	if !prefers && len(c.withTerms) == 0 {
		return nil
	}
	others := c.withTerms
	if prefers {
		others = c.pods
	}
	counts := domainCounts{}
	weigh := func(n *nodeInfo, terms []term, pod *corev1.Pod, sign, weight int64) {
		for i := range terms {
			if terms[i].matches(c.state, pod) {
				counts.add(n, terms[i].key, sign*max(weight, terms[i].weight))
			}
		}
	}
	for _, p := range others {
		n := c.nodes[p.node]
		if n == nil || n.node == nil {
			continue
		}
		if prefers {
			weigh(n, t.preferNear, p.pod, 1, 0)
			weigh(n, t.preferAway, p.pod, -1, 0)
		}
		if p.terms != nil {
			weigh(n, p.terms.near, c.pod.pod, 1, hardPodAffinityWeight)
			weigh(n, p.terms.preferNear, c.pod.pod, 1, 0)
			weigh(n, p.terms.preferAway, c.pod.pod, -1, 0)
		}
	}
	if len(counts) == 0 {
		return nil
	}
	return interPodScorer{counts}
}

func (s interPodScorer) score(n *nodeInfo) int64 { return s.counts.on(n) }

func (interPodScorer) normalize(scores []int64) {
	least, most := slices.Min(scores), slices.Max(scores)
	for i, s := range scores {
		scores[i] = 0
		if most > least {
			scores[i] = maxScore * (s - least) / (most - least)
		}
	}
}

func (interPodAffinity) hint(e client.Event, pod *corev1.Pod) bool {
	if placed, ok := e.New.(*corev1.Pod); ok && placed.Spec.NodeName != "" {
		t := newAffinityTerms(pod)
		return t != nil && len(t.near) > 0 || podLeft(e)
	}
	old, node := nodeEvent(e)
	return podLeft(e) || node != nil && (old == nil || !equality.Semantic.DeepEqual(old.Labels, node.Labels))
}
