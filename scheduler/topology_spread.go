package scheduler

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa/client"
)

const podTopologySpreadName = "PodTopologySpread"

// podTopologySpread keeps the matching pods of a group evenly spread over domains.
type podTopologySpread struct{}

func (podTopologySpread) name() string { return podTopologySpreadName }

// spreadConstraint is a constraint with the numbers of the present cycle.
type spreadConstraint struct {
	key                       string
	selector                  labels.Selector
	maxSkew, minDomains, self int64
	honorAffinity             bool
	honorTaints               bool
	counts                    map[string]int64
	weight                    float64 // of a soft constraint
	// fewest is least's answer while counted.
	fewest  int64
	counted bool
}

func newSpreadConstraint(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) spreadConstraint {
	c := spreadConstraint{key: t.TopologyKey, selector: labels.Nothing(), maxSkew: int64(t.MaxSkew), minDomains: 1, counts: map[string]int64{}}
	if t.MinDomains != nil {
		c.minDomains = int64(*t.MinDomains)
	}
	c.honorAffinity = t.NodeAffinityPolicy == nil || *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	c.honorTaints = t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	merged := t.LabelSelector.DeepCopy()
	for _, key := range t.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok && merged != nil {
			merged.MatchExpressions = append(merged.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(merged); err == nil {
		c.selector = selector
	}
	if c.selector.Matches(labels.Set(pod.Labels)) {
		c.self = 1
	}
	return c
}

// least is how many pods the emptiest domain has; none when there are fewer domains than wanted.
func (c *spreadConstraint) least() int64 {
	if !c.counted {
		c.fewest, c.counted = 0, true
		if int64(len(c.counts)) >= c.minDomains && len(c.counts) > 0 {
			c.fewest = math.MaxInt64
			for _, count := range c.counts {
				c.fewest = min(c.fewest, count)
			}
		}
	}
	return c.fewest
}

func spreadConstraints(pod *corev1.Pod, action corev1.UnsatisfiableConstraintAction) (out []spreadConstraint) {
	for i := range pod.Spec.TopologySpreadConstraints {
		if t := &pod.Spec.TopologySpreadConstraints[i]; t.WhenUnsatisfiable == action {
			out = append(out, newSpreadConstraint(pod, t))
		}
	}
	return out
}

// spread is the constraints of one pod and which nodes count for them.
type spread struct {
	pod         *corev1.Pod
	required    nodeaffinity.RequiredNodeAffinity
	constraints []spreadConstraint
	// anyKey counts nodes that lack some of the topology keys.
	anyKey bool
}

// includes reports whether a node belongs to the domains of c.
func (s *spread) includes(n *nodeInfo, c *spreadConstraint) bool {
	if c.honorAffinity {
		if ok, err := s.required.Match(n.node); !ok || err != nil {
			return false
		}
	}
	if c.honorTaints {
		for i := range n.node.Spec.Taints {
			t := &n.node.Spec.Taints[i]
			if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(s.pod.Spec.Tolerations, t) {
				return false
			}
		}
	}
	return true
}

func (s *spread) hasKeys(n *nodeInfo) bool {
	for i := range s.constraints {
		if _, ok := n.node.Labels[s.constraints[i].key]; !ok {
			return false
		}
	}
	return true
}

// domains enters the domains of nodes, with no pods.
func (s *spread) domains(nodes []*nodeInfo) {
	for _, n := range nodes {
		if !s.anyKey && !s.hasKeys(n) {
			continue
		}
		for i := range s.constraints {
			c := &s.constraints[i]
			if value, ok := n.node.Labels[c.key]; ok && s.includes(n, c) {
				if _, known := c.counts[value]; !known {
					c.counts[value] = 0
				}
			}
		}
	}
}

// changePod counts a pod, in domains that have been entered.
func (s *spread) changePod(n *nodeInfo, p *podInfo, by int) {
	if p.pod.Namespace != s.pod.Namespace || p.pod.DeletionTimestamp != nil || p.pod.UID == s.pod.UID || !s.anyKey && !s.hasKeys(n) {
		return
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		value, ok := n.node.Labels[c.key]
		if !ok || !c.selector.Matches(labels.Set(p.pod.Labels)) || !s.includes(n, c) {
			continue
		}
		if _, known := c.counts[value]; known {
			c.counts[value] += int64(by)
			c.counted = false
		}
	}
}

func (s *spread) count(st *state) {
	for _, p := range st.inNamespace[s.pod.Namespace] {
		if n := st.nodes[p.node]; n != nil && n.node != nil {
			s.changePod(n, p, 1)
		}
	}
}

type spreadFilter struct {
	spread
	missing, skewed *status
}

func (podTopologySpread) preFilter(c *cycle) (filter, *status) {
	constraints := spreadConstraints(c.pod.pod, corev1.DoNotSchedule)
	if len(constraints) == 0 {
		return nil, nil
	}
	f := &spreadFilter{
		spread:  spread{pod: c.pod.pod, required: nodeaffinity.GetRequiredNodeAffinity(c.pod.pod), constraints: constraints},
		missing: reject(podTopologySpreadName, unresolvable, "node(s) didn't match pod topology spread constraints (missing required label)"),
		skewed:  reject(podTopologySpreadName, unschedulable, "node(s) didn't match pod topology spread constraints"),
	}
	f.domains(c.list())
	f.count(c.state)
	return f, nil
}

func (f *spreadFilter) filter(n *nodeInfo) *status {
	for i := range f.constraints {
		c := &f.constraints[i]
		value, ok := n.node.Labels[c.key]
		if !ok {
			return f.missing
		}
		if c.counts[value]+c.self-c.least() > c.maxSkew {
			return f.skewed
		}
	}
	return nil
}

type spreadScorer struct {
	spread
	ignored map[*nodeInfo]bool
	rated   []*nodeInfo
}

func (podTopologySpread) preScore(c *cycle, nodes []*nodeInfo) scorer {
	s := &spreadScorer{
		spread: spread{
			pod: c.pod.pod, required: nodeaffinity.GetRequiredNodeAffinity(c.pod.pod),
			constraints: spreadConstraints(c.pod.pod, corev1.ScheduleAnyway),
		},
		ignored: map[*nodeInfo]bool{}, rated: nodes,
	}
	if len(c.pod.pod.Spec.TopologySpreadConstraints) == 0 {
		// Pods without constraints of their own spread with what owns or serves them: 3 over nodes, 5 over zones.
		selector := c.groupOf(c.pod.pod)
		if selector == nil {
			return nil
		}
		s.anyKey = true
		for _, d := range [2]struct {
			key  string
			skew int64
		}{{corev1.LabelHostname, 3}, {corev1.LabelTopologyZone, 5}} {
			s.constraints = append(s.constraints, spreadConstraint{
				key: d.key, selector: selector, maxSkew: d.skew, honorAffinity: true, counts: map[string]int64{},
			})
		}
	}
	if len(s.constraints) == 0 {
		return nil
	}
	for _, n := range nodes {
		if !s.anyKey && !s.hasKeys(n) {
			s.ignored[n] = true
		}
	}
	s.domains(nodes)
	for i := range s.constraints {
		size := len(s.constraints[i].counts)
		if s.constraints[i].key == corev1.LabelHostname {
			size = len(nodes) - len(s.ignored)
		}
		s.constraints[i].weight = math.Log(float64(size + 2))
	}
	s.count(c.state)
	return s
}

func (s *spreadScorer) score(n *nodeInfo) int64 {
	if s.ignored[n] {
		return -1
	}
	sum := 0.0
	for i := range s.constraints {
		c := &s.constraints[i]
		if value, ok := n.node.Labels[c.key]; ok {
			sum += float64(c.counts[value])*c.weight + float64(c.maxSkew-1)
		}
	}
	return int64(math.Round(sum))
}

// normalize gives the emptiest domains the most; nodes outside the domains get nothing.
func (s *spreadScorer) normalize(scores []int64) {
	least, most := int64(math.MaxInt64), int64(0)
	for _, x := range scores {
		if x >= 0 {
			least, most = min(least, x), max(most, x)
		}
	}
	for i, x := range scores {
		switch {
		case x < 0:
			scores[i] = 0
		case most == 0:
			scores[i] = maxScore
		default:
			scores[i] = maxScore * (most + least - x) / most
		}
	}
}

func (podTopologySpread) hint(e client.Event, pod *corev1.Pod) bool {
	if changed, ok := e.Object().(*corev1.Pod); ok {
		return changed.Namespace == pod.Namespace && changed.Spec.NodeName != ""
	}
	old, node := nodeEvent(e)
	_, wasNode := e.Old.(*corev1.Node)
	return wasNode && node == nil ||
		node != nil && (old == nil || !equality.Semantic.DeepEqual(old.Labels, node.Labels) || !equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints))
}
