package scheduler

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa/client"
)

const (
	schedulingGatesName   = "SchedulingGates"
	nodeUnschedulableName = "NodeUnschedulable"
	nodeNameName          = "NodeName"
	nodePortsName         = "NodePorts"
)

// schedulingGates keeps pods with gates out of the queue.
type schedulingGates struct{}

func (schedulingGates) name() string { return schedulingGatesName }

func (schedulingGates) preEnqueue(pod *corev1.Pod) *status {
	if len(pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	return reject(schedulingGatesName, unresolvable, "Scheduling is blocked due to non-empty scheduling gates")
}

// nodeUnschedulable refuses cordoned nodes.
type nodeUnschedulable struct{}

type unschedulableFilter struct{ rejected *status }

func (nodeUnschedulable) name() string { return nodeUnschedulableName }

func (nodeUnschedulable) preFilter(c *cycle) (filter, *status) {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if tolerated(c.pod.pod.Spec.Tolerations, &taint) {
		return nil, nil
	}
	return unschedulableFilter{reject(nodeUnschedulableName, unresolvable, "node(s) were unschedulable")}, nil
}

func (f unschedulableFilter) filter(n *nodeInfo) *status {
	if n.node.Spec.Unschedulable {
		return f.rejected
	}
	return nil
}

func (nodeUnschedulable) hint(e client.Event, pod *corev1.Pod) bool {
	old, node := nodeEvent(e)
	return node != nil && !node.Spec.Unschedulable && (old == nil || old.Spec.Unschedulable)
}

// nodeName keeps a pod that names its node to that node.
type nodeName struct{}

type nodeNameFilter struct {
	node     string
	rejected *status
}

func (nodeName) name() string { return nodeNameName }

func (nodeName) preFilter(c *cycle) (filter, *status) {
	if c.pod.pod.Spec.NodeName == "" {
		return nil, nil
	}
	return nodeNameFilter{c.pod.pod.Spec.NodeName, reject(nodeNameName, unresolvable, "node(s) didn't match the requested node name")}, nil
}

func (f nodeNameFilter) filter(n *nodeInfo) *status {
	if n.name != f.node {
		return f.rejected
	}
	return nil
}

// nodePorts refuses nodes where a host port is taken.
type nodePorts struct{}

type portsFilter struct {
	ports    []hostPort
	rejected *status
}

func (nodePorts) name() string { return nodePortsName }

func (nodePorts) preFilter(c *cycle) (filter, *status) {
	if len(c.pod.ports) == 0 {
		return nil, nil
	}
	return portsFilter{c.pod.ports, reject(nodePortsName, unschedulable, "node(s) didn't have free ports for the requested pod ports")}, nil
}

func (f portsFilter) filter(n *nodeInfo) *status {
	for _, p := range f.ports {
		if slices.ContainsFunc(n.ports, p.conflicts) {
			return f.rejected
		}
	}
	return nil
}

func (nodePorts) hint(e client.Event, pod *corev1.Pod) bool {
	old, node := nodeEvent(e)
	return podLeft(e) || node != nil && old == nil
}
