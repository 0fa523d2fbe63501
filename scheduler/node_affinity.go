package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa/client"
)

const nodeAffinityName = "NodeAffinity"

// nodeAffinity holds pods to their nodeSelector and node affinity.
type nodeAffinity struct{}

func (nodeAffinity) name() string { return nodeAffinityName }

type affinityFilter struct {
	required nodeaffinity.RequiredNodeAffinity
	rejected *status
}

func (nodeAffinity) preFilter(c *cycle) (filter, *status) {
	spec := &c.pod.pod.Spec
	required := requiredNodeTerms(c.pod.pod)
	if required == nil && len(spec.NodeSelector) == 0 {
		return nil, nil
	}
	if names, ok := namedNodes(required); ok {
		if names.Len() == 0 {
			return nil, reject(nodeAffinityName, unresolvable, "pod affinity terms conflict")
		}
		c.narrow(nodeAffinityName, names)
	}
	return &affinityFilter{
		nodeaffinity.GetRequiredNodeAffinity(c.pod.pod),
		reject(nodeAffinityName, unresolvable, "node(s) didn't match Pod's node affinity/selector"),
	}, nil
}

func requiredNodeTerms(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// namedNodes returns the nodes that terms name, if every term names some: so do the pods of a DaemonSet.
func namedNodes(required *corev1.NodeSelector) (sets.Set[string], bool) {
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return nil, false
	}
	all := sets.Set[string]{}
	for _, term := range required.NodeSelectorTerms {
		var names sets.Set[string]
		for _, f := range term.MatchFields {
			if f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if names == nil {
				names = sets.New(f.Values...)
			} else {
				names = names.Intersection(sets.New(f.Values...))
			}
		}
		if names == nil {
			return nil, false
		}
		all = all.Union(names)
	}
	return all, true
}

func (f *affinityFilter) filter(n *nodeInfo) *status {
	if ok, err := f.required.Match(n.node); !ok || err != nil {
		return f.rejected
	}
	return nil
}

type affinityScorer struct {
	terms *nodeaffinity.PreferredSchedulingTerms
}

func (nodeAffinity) preScore(c *cycle, nodes []*nodeInfo) scorer {
	a := c.pod.pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		return nil // validated on creation: cannot be
	}
	return affinityScorer{terms}
}

func (s affinityScorer) score(n *nodeInfo) int64 { return s.terms.Score(n.node) }
func (affinityScorer) normalize(scores []int64)  { normalizeTo(scores, false) }

func (nodeAffinity) hint(e client.Event, pod *corev1.Pod) bool {
	old, node := nodeEvent(e)
	if node == nil || old != nil && equality.Semantic.DeepEqual(old.Labels, node.Labels) {
		return false
	}
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return ok && err == nil
}
