package scheduler

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa/client"
)

const (
	nodeResourcesFitName   = "NodeResourcesFit"
	balancedAllocationName = "NodeResourcesBalancedAllocation"
)

// nodeResourcesFit refuses nodes without room for the pod's requests, and prefers those with most room left.
type nodeResourcesFit struct{}

func (nodeResourcesFit) name() string { return nodeResourcesFitName }

type fitFilter struct {
	want  amounts
	known map[string]*status
}

func (nodeResourcesFit) preFilter(c *cycle) (filter, *status) {
	return &fitFilter{want: c.pod.requests}, nil
}

func (f *fitFilter) filter(n *nodeInfo) *status {
	w, have, used := &f.want, &n.allocatable, &n.requested
	pods := int64(len(n.pods)) < n.maxPods
	cpu := w.milliCPU == 0 || w.milliCPU <= have.milliCPU-used.milliCPU
	memory := w.memory == 0 || w.memory <= have.memory-used.memory
	ephemeral := w.ephemeral == 0 || w.ephemeral <= have.ephemeral-used.ephemeral
	if pods && cpu && memory && ephemeral && len(w.scalar) == 0 {
		return nil
	}
	var reasons []string
	c := unschedulable
	note := func(fits bool, reason string, want, have int64) {
		if !fits {
			reasons = append(reasons, reason)
			if want > have {
				c = unresolvable
			}
		}
	}
	note(pods, "Too many pods", 1, max(n.maxPods, 1))
	note(cpu, "Insufficient cpu", w.milliCPU, have.milliCPU)
	note(memory, "Insufficient memory", w.memory, have.memory)
	note(ephemeral, "Insufficient ephemeral-storage", w.ephemeral, have.ephemeral)
	for name, v := range w.scalar {
		note(v == 0 || v <= have.scalar[name]-used.scalar[name], "Insufficient "+string(name), v, have.scalar[name])
	}
	if len(reasons) == 0 {
		return nil
	}
	key := strings.Join(reasons, ",")
	if c == unresolvable {
		key += "!"
	}
	r := f.known[key]
	if r == nil {
		if f.known == nil {
			f.known = map[string]*status{}
		}
		r = reject(nodeResourcesFitName, c, reasons...)
		f.known[key] = r
	}
	return r
}

type leastAllocated struct{ want amounts }

func (nodeResourcesFit) preScore(c *cycle, nodes []*nodeInfo) scorer {
	return leastAllocated{c.pod.nonZero}
}

func (s leastAllocated) score(n *nodeInfo) int64 {
	var sum, weights int64
	for _, r := range [2][2]int64{
		{n.nonZero.milliCPU + s.want.milliCPU, n.allocatable.milliCPU},
		{n.nonZero.memory + s.want.memory, n.allocatable.memory},
	} {
		if r[1] == 0 {
			continue
		}
		weights++
		if r[0] <= r[1] {
			sum += (r[1] - r[0]) * maxScore / r[1]
		}
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

func (leastAllocated) normalize([]int64) {}

func (nodeResourcesFit) hint(e client.Event, pod *corev1.Pod) bool {
	if podLeft(e) {
		return true
	}
	old, node := nodeEvent(e)
	if node == nil || old != nil && equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) {
		return false
	}
	n := &nodeInfo{}
	n.setNode(node)
	f := fitFilter{want: newPodInfo(pod).requests}
	return f.filter(n) == nil
}

// balancedAllocation prefers nodes whose CPU and memory would be used to the same degree.
type balancedAllocation struct{}

func (balancedAllocation) name() string { return balancedAllocationName }

type balanceScorer struct{ want amounts }

func (balancedAllocation) preScore(c *cycle, nodes []*nodeInfo) scorer {
	return balanceScorer{c.pod.requests}
}

func (s balanceScorer) score(n *nodeInfo) int64 {
	if n.allocatable.milliCPU == 0 || n.allocatable.memory == 0 {
		return maxScore
	}
	cpu := min(float64(n.requested.milliCPU+s.want.milliCPU)/float64(n.allocatable.milliCPU), 1)
	memory := min(float64(n.requested.memory+s.want.memory)/float64(n.allocatable.memory), 1)
	return int64((1 - math.Abs(cpu-memory)/2) * maxScore)
}

func (balanceScorer) normalize([]int64) {}
