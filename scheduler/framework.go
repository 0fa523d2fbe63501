package scheduler

import (
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa/client"
)

// code says what a rejection means for preemption.
type code uint8

const (
	// unschedulable nodes may become feasible when pods leave them.
	unschedulable code = iota
	// unresolvable nodes stay infeasible whatever pods leave them.
	unresolvable
	// failed means that a plugin could not decide; the pod is tried again after its back-off.
	failed
)

// status is why a plugin rejects a pod or a node; nil accepts. Filters return prepared values, so that rejecting
// thousands of nodes allocates nothing.
type status struct {
	code    code
	plugin  string
	reasons []string
}

func reject(plugin string, c code, reasons ...string) *status {
	return &status{code: c, plugin: plugin, reasons: reasons}
}

// cycle is one attempt to place one pod.
type cycle struct {
	*state
	pod *podInfo
	// only is set when a plugin has narrowed the search to these nodes; narrowedBy are the plugins.
	only       sets.Set[string]
	narrowedBy []string
	filters    []filter
	// rejectedBy are the plugins whose events may make the pod schedulable.
	rejectedBy sets.Set[string]
}

// narrow restricts the search to nodes.
func (c *cycle) narrow(plugin string, nodes sets.Set[string]) {
	if c.only == nil {
		c.only = nodes
	} else {
		c.only = c.only.Intersection(nodes)
	}
	c.narrowedBy = append(c.narrowedBy, plugin)
}

// plugin has a name, and implements what it takes part in: preEnqueuer, preFilterer, preScorer, hinter.
type plugin interface{ name() string }

// preEnqueuer keeps pods out of the queue: it returns why, or nil.
type preEnqueuer interface {
	preEnqueue(pod *corev1.Pod) *status
}

// preFilterer looks at a pod once and returns the filter of the nodes, nil when all pass.
type preFilterer interface {
	preFilter(c *cycle) (filter, *status)
}

// filter decides about one node for the pod it was made for.
type filter interface {
	filter(n *nodeInfo) *status
}

// podFilter is a filter whose answer depends on pods elsewhere: preemption tells it of pods that it takes away from a
// node or puts back.
type podFilter interface {
	filter
	changePod(n *nodeInfo, p *podInfo, by int)
}

// preScorer looks at a pod and its feasible nodes once and returns the scorer, nil when it prefers none.
type preScorer interface {
	preScore(c *cycle, nodes []*nodeInfo) scorer
}

// scorer rates a node; normalize brings the ratings of all nodes into 0..100.
type scorer interface {
	score(n *nodeInfo) int64
	normalize(scores []int64)
}

// hinter says whether a change may make a pod schedulable that the plugin rejected.
type hinter interface {
	hint(e client.Event, pod *corev1.Pod) bool
}

const maxScore = 100

// weighted is a plugin and the weight of its scores.
type weighted struct {
	plugin
	weight int64
}

// normalizeTo scales scores so that the highest is 100, reversed when less is better.
func normalizeTo(scores []int64, reverse bool) {
	top := int64(0)
	for _, s := range scores {
		top = max(top, s)
	}
	for i, s := range scores {
		if top > 0 {
			s = s * maxScore / top
		}
		if reverse {
			s = maxScore - s
		}
		scores[i] = s
	}
}

// prepare runs the PreFilter step.
func (c *cycle) prepare(plugins []weighted) *status {
	for _, w := range plugins {
		p, ok := w.plugin.(preFilterer)
		if !ok {
			continue
		}
		f, rejected := p.preFilter(c)
		if rejected != nil {
			return rejected
		}
		if f != nil {
			c.filters = append(c.filters, f)
		}
	}
	return nil
}

// check runs the filters on one node.
func (c *cycle) check(n *nodeInfo) *status {
	for _, f := range c.filters {
		if s := f.filter(n); s != nil {
			return s
		}
	}
	return nil
}

// choose returns the best of nodes; equals are drawn by lot.
func (c *cycle) choose(plugins []weighted, nodes []*nodeInfo, random *rand.Rand) *nodeInfo {
	if len(nodes) == 1 {
		return nodes[0]
	}
	total := make([]int64, len(nodes))
	scores := make([]int64, len(nodes))
	for _, w := range plugins {
		p, ok := w.plugin.(preScorer)
		if !ok || w.weight == 0 {
			continue
		}
		s := p.preScore(c, nodes)
		if s == nil {
			continue
		}
		for i, n := range nodes {
			scores[i] = s.score(n)
		}
		s.normalize(scores)
		for i := range total {
			total[i] += scores[i] * w.weight
		}
	}
	top := slices.Max(total)
	best, ties := slices.Index(total, top), 1
	for i := best + 1; i < len(total); i++ {
		if total[i] == top {
			ties++
			if random.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return nodes[best]
}
