package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// admit decides once whether a pod may run here. What was found running has been decided on before.
func (n *Node) admit(p *pod, api *corev1.Pod) {
	p.mu.Lock()
	done := p.admitted
	known := p.adopted || len(p.containers) > 0 || len(p.sandboxes) > 0
	p.mu.Unlock()
	if done {
		return
	}
	// One after the other, so that each is held against all that were admitted before.
	n.admission.Lock()
	defer n.admission.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.admitted = true
	}()
	if known || terminal(api) || api.DeletionTimestamp != nil {
		return
	}
	if r := n.refuse(p, api); r != nil {
		p.refuse(r)
		n.event(api, "", corev1.EventTypeWarning, r.reason, r.message)
	}
}

func (n *Node) refuse(p *pod, api *corev1.Pod) *refusal {
	node := n.self()
	if os := api.Spec.OS; os != nil && os.Name != corev1.Linux {
		return &refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if r := refuseSysctls(api); r != nil {
		return r
	}
	if node == nil {
		return nil
	}
	if os, ok := api.Spec.NodeSelector[corev1.LabelOSStable]; ok && os != node.Labels[corev1.LabelOSStable] {
		return &refusal{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(api).Match(node); err != nil || !ok {
		return &refusal{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	r := n.refuseResources(p, api, node, nil)
	if r != nil && critical(api) && strings.HasPrefix(r.reason, "OutOf") && n.makeRoom(p, api, node, r) {
		return nil
	}
	return r
}

// refuseResources holds the node's capacity against what the pods admitted before ask for, leaving out some of them.
func (n *Node) refuseResources(p *pod, api *corev1.Pod, node *corev1.Node, without map[types.UID]bool) *refusal {
	n.mu.RLock()
	others := make([]*pod, 0, len(n.byUID))
	for _, other := range n.byUID {
		if other != p && !without[other.uid] {
			others = append(others, other)
		}
	}
	n.mu.RUnlock()
	used, count := corev1.ResourceList{}, int64(0)
	var ports []corev1.ContainerPort
	for _, other := range others {
		other.mu.Lock()
		object := other.api
		waits := !other.admitted && !other.adopted
		// A refused pod that never ran holds nothing; one that has to end does so until it has.
		refused := other.refusal != nil && (len(other.sandboxes) == 0 || other.refusal.reason == preempting)
		other.mu.Unlock()
		if object == nil || terminal(object) || waits || refused {
			continue
		}
		count++
		add(used, podResources(object, requests))
		ports = append(ports, hostPorts(object)...)
	}
	for _, want := range hostPorts(api) {
		if slices.ContainsFunc(ports, func(have corev1.ContainerPort) bool { return portsClash(want, have) }) {
			return &refusal{"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"}
		}
	}
	if pods := node.Status.Allocatable.Pods().Value(); pods > 0 && count+1 > pods {
		return &refusal{"OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", count, pods)}
	}
	for name, want := range podResources(api, requests) {
		have, ok := node.Status.Allocatable[name]
		if want.IsZero() || (!ok && len(node.Status.Allocatable) == 0) {
			continue
		}
		sum := used[name].DeepCopy()
		sum.Add(want)
		if sum.Cmp(have) > 0 {
			taken := used[name]
			value := func(milli, plain int64) int64 {
				if name == corev1.ResourceCPU {
					return milli
				}
				return plain
			}
			return &refusal{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name,
				value(want.MilliValue(), want.Value()), value(taken.MilliValue(), taken.Value()), value(have.MilliValue(), have.Value()))}
		}
	}
	return nil
}

func hostPorts(api *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range api.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				out = append(out, port)
			}
		}
	}
	return out
}

func portsClash(a, b corev1.ContainerPort) bool {
	every := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.HostPort == b.HostPort && a.Protocol == b.Protocol && (a.HostIP == b.HostIP || every(a.HostIP) || every(b.HostIP))
}
