package scheduler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// state is what the scheduler knows of nodes and of the pods placed on them, kept up to date event by event. Pods that are
// being bound count as placed (assumed). The Scheduler's mutex guards it.
type state struct {
	nodes map[string]*nodeInfo
	pods  map[types.UID]*podInfo
	// assumed pods have been decided and not been seen bound.
	assumed map[types.UID]bool
	// withTerms are the placed pods with terms of (anti-)affinity.
	withTerms   map[types.UID]*podInfo
	inNamespace map[string]map[types.UID]*podInfo
	// nominated are the pods that preemption makes room for, by node.
	nominated map[string]map[types.UID]*podInfo
	// imageNodes is how many nodes have an image.
	imageNodes map[string]int
	others
	// order of the search, zones taking turns; nil when it has to be made again.
	order []*nodeInfo
}

func newState() *state {
	return &state{nodes: map[string]*nodeInfo{}, pods: map[types.UID]*podInfo{}, assumed: map[types.UID]bool{},
		withTerms: map[types.UID]*podInfo{}, inNamespace: map[string]map[types.UID]*podInfo{}, others: newOthers(),
		imageNodes: map[string]int{}, nominated: map[string]map[types.UID]*podInfo{},
	}
}

func (s *state) node(name string) *nodeInfo {
	n := s.nodes[name]
	if n == nil {
		n = &nodeInfo{name: name}
		s.nodes[name] = n
	}
	return n
}

func (s *state) setNode(node *corev1.Node) {
	n := s.node(node.Name)
	zone, known := n.zone(), n.node != nil
	s.countImages(n, -1)
	n.setNode(node)
	s.countImages(n, 1)
	if !known || zone != n.zone() {
		s.order = nil
	}
}

func (s *state) countImages(n *nodeInfo, by int) {
	for name := range n.images {
		if s.imageNodes[name] += by; s.imageNodes[name] == 0 {
			delete(s.imageNodes, name)
		}
	}
}

func (s *state) removeNode(name string) {
	n := s.nodes[name]
	if n == nil {
		return
	}
	s.countImages(n, -1)
	n.setNode(nil)
	s.order = nil
	if len(n.pods) == 0 {
		delete(s.nodes, name)
	}
}

// place takes p as being on its node, in place of what was known of the same pod.
func (s *state) place(p *podInfo) {
	s.displace(p.pod.UID)
	s.pods[p.pod.UID] = p
	if p.terms != nil {
		s.withTerms[p.pod.UID] = p
	}
	if s.inNamespace[p.pod.Namespace] == nil {
		s.inNamespace[p.pod.Namespace] = map[types.UID]*podInfo{}
	}
	s.inNamespace[p.pod.Namespace][p.pod.UID] = p
	s.node(p.node).add(p)
}

// displace forgets a pod.
func (s *state) displace(uid types.UID) {
	p := s.pods[uid]
	if p == nil {
		return
	}
	delete(s.pods, uid)
	delete(s.withTerms, uid)
	delete(s.inNamespace[p.pod.Namespace], uid)
	if len(s.inNamespace[p.pod.Namespace]) == 0 {
		delete(s.inNamespace, p.pod.Namespace)
	}
	n := s.nodes[p.node]
	n.remove(p)
	if n.node == nil && len(n.pods) == 0 {
		delete(s.nodes, p.node)
	}
}

// list returns the known nodes in search order: one of each zone in turn, so that a search that stops early has seen
// all zones.
func (s *state) list() []*nodeInfo {
	if s.order != nil {
		return s.order
	}
	zones := map[string][]*nodeInfo{}
	var names []string
	count := 0
	for _, n := range s.nodes {
		if n.node == nil {
			continue
		}
		zone := n.zone()
		if zones[zone] == nil {
			names = append(names, zone)
		}
		zones[zone] = append(zones[zone], n)
		count++
	}
	slices.Sort(names)
	for _, nodes := range zones {
		slices.SortFunc(nodes, func(a, b *nodeInfo) int { return strings.Compare(a.name, b.name) })
	}
	s.order = make([]*nodeInfo, 0, count)
	for i := 0; len(s.order) < count; i++ {
		for _, zone := range names {
			if i < len(zones[zone]) {
				s.order = append(s.order, zones[zone][i])
			}
		}
	}
	return s.order
}
