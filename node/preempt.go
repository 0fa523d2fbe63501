package node

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// criticalPriority is where the priorities begin that the cluster itself lives by.
const criticalPriority = 2000000000

// preempting is why a pod has to end for a critical one.
const preempting = "Preempting"

func critical(api *corev1.Pod) bool {
	return api.Spec.Priority != nil && *api.Spec.Priority >= criticalPriority
}

// refuse sets why a pod may not run (any more).
func (p *pod) refuse(r *refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = r
}

func (p *pod) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusal != nil
}

// makeRoom ends lesser pods for a critical one that lacks resources only, as few as will do, and reports whether that
// was enough. Nothing is ended when it is not.
func (n *Node) makeRoom(p *pod, api *corev1.Pod, node *corev1.Node, why *refusal) bool {
	type candidate struct {
		pod *pod
		api *corev1.Pod
	}
	var candidates []candidate
	n.mu.RLock()
	for _, other := range n.byUID {
		object := other.object()
		if other == p || object == nil || terminal(object) || critical(object) || other.refused() {
			continue
		}
		candidates = append(candidates, candidate{other, object})
	}
	n.mu.RUnlock()
	class := func(c candidate) int {
		return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, qosClass(c.api))
	}
	// The least important first, of these the youngest.
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(priority(a.api), priority(b.api)), cmp.Compare(class(a), class(b)), b.api.CreationTimestamp.Compare(a.api.CreationTimestamp.Time),
			strings.Compare(string(a.api.UID), string(b.api.UID)))
	})
	without := map[types.UID]bool{}
	for _, c := range candidates {
		if why == nil {
			break
		}
		without[c.api.UID] = true
		why = n.refuseResources(p, api, node, without)
	}
	if why != nil {
		return false
	}
	// Who was chosen early may not be needed any more; the most important are spared first.
	for _, c := range slices.Backward(candidates) {
		if !without[c.api.UID] {
			continue
		}
		delete(without, c.api.UID)
		if n.refuseResources(p, api, node, without) != nil {
			without[c.api.UID] = true
		}
	}
	for _, c := range candidates {
		if !without[c.api.UID] {
			continue
		}
		c.pod.refuse(&refusal{preempting, "Preempted in order to admit critical pod"})
		n.event(c.api, "", corev1.EventTypeWarning, preempting, "Preempted in order to admit critical pod")
		n.queue.Add(c.api.UID)
	}
	return true
}

func priority(api *corev1.Pod) int32 {
	if api.Spec.Priority == nil {
		return 0
	}
	return *api.Spec.Priority
}
