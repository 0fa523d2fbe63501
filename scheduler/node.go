package scheduler

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
)

// What a container without a request counts as when nodes are compared, so that such pods spread too.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
)

// amounts of resources, in plain numbers.
type amounts struct {
	milliCPU, memory, ephemeral int64
	scalar                      map[corev1.ResourceName]int64
}

func amountsOf(list corev1.ResourceList) amounts {
	var a amounts
	for name, q := range list {
		switch name {
		case corev1.ResourceCPU:
			a.milliCPU = q.MilliValue()
		case corev1.ResourceMemory:
			a.memory = q.Value()
		case corev1.ResourceEphemeralStorage:
			a.ephemeral = q.Value()
		case corev1.ResourcePods:
		default:
			if a.scalar == nil {
				a.scalar = map[corev1.ResourceName]int64{}
			}
			a.scalar[name] = q.Value()
		}
	}
	return a
}

// add adds by times b.
func (a *amounts) add(b *amounts, by int64) {
	a.milliCPU += by * b.milliCPU
	a.memory += by * b.memory
	a.ephemeral += by * b.ephemeral
	for name, v := range b.scalar {
		if a.scalar == nil {
			a.scalar = map[corev1.ResourceName]int64{}
		}
		a.scalar[name] += by * v
	}
}

// hostPort is a port of the node that a pod takes.
type hostPort struct {
	ip       netip.Addr // unspecified: every address
	protocol corev1.Protocol
	port     int32
}

func (p hostPort) conflicts(o hostPort) bool {
	return p.port == o.port && p.protocol == o.protocol &&
		(p.ip == o.ip || p.ip.IsUnspecified() || o.ip.IsUnspecified())
}

// podInfo is a pod with what the plugins want to know of it, computed once.
type podInfo struct {
	pod      *corev1.Pod
	node     string
	requests amounts
	// nonZero are the requests with a minimum for CPU and memory.
	nonZero amounts
	ports   []hostPort
	terms   *affinityTerms // nil without any
	// nominated is the node where preemption makes room for the pod; state.nominate changes it.
	nominated string
}

func newPodInfo(pod *corev1.Pod) *podInfo {
	p := &podInfo{pod: pod, node: pod.Spec.NodeName, terms: newAffinityTerms(pod)}
	p.requests = amountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	p.nonZero = amountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{NonMissingContainerRequests: minimumRequests()}))
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			p.addPorts(c)
		}
	}
	for i := range pod.Spec.Containers {
		p.addPorts(&pod.Spec.Containers[i])
	}
	return p
}

func (p *podInfo) addPorts(c *corev1.Container) {
	for _, cp := range c.Ports {
		if cp.HostPort <= 0 {
			continue
		}
		ip, err := netip.ParseAddr(cp.HostIP)
		if err != nil {
			ip = netip.IPv4Unspecified()
		}
		protocol := cp.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		p.ports = append(p.ports, hostPort{ip, protocol, cp.HostPort})
	}
}

// minimumRequests is what a container without requests counts as.
func minimumRequests() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *apiresource.NewMilliQuantity(defaultMilliCPU, apiresource.DecimalSI),
		corev1.ResourceMemory: *apiresource.NewQuantity(defaultMemory, apiresource.DecimalSI),
	}
}

func (p *podInfo) priority() int32 {
	if p.pod.Spec.Priority != nil {
		return *p.pod.Spec.Priority
	}
	return 0
}

// nodeInfo is a node and the pods that are, or are about to be, on it.
type nodeInfo struct {
	name string
	// node is nil while pods are known to be on a node that itself is not known.
	node        *corev1.Node
	pods        []*podInfo
	allocatable amounts
	maxPods     int64
	requested   amounts
	nonZero     amounts
	ports       []hostPort
	images      map[string]int64 // sizes by name
}

func (n *nodeInfo) setNode(node *corev1.Node) {
	n.node = node
	n.allocatable = amounts{}
	n.maxPods = 0
	n.images = nil
	if node != nil {
		n.allocatable = amountsOf(node.Status.Allocatable)
		n.maxPods = node.Status.Allocatable.Pods().Value()
		for i := range node.Status.Images {
			for _, name := range node.Status.Images[i].Names {
				if n.images == nil {
					n.images = map[string]int64{}
				}
				n.images[name] = node.Status.Images[i].SizeBytes
			}
		}
	}
}

// clone returns a copy that pods can be added to and removed from.
func (n *nodeInfo) clone() *nodeInfo {
	c := *n
	c.pods = slices.Clone(n.pods)
	c.ports = slices.Clone(n.ports)
	c.requested.scalar = maps.Clone(n.requested.scalar)
	c.nonZero.scalar = maps.Clone(n.nonZero.scalar)
	return &c
}

func (n *nodeInfo) add(p *podInfo) {
	n.pods = append(n.pods, p)
	n.requested.add(&p.requests, 1)
	n.nonZero.add(&p.nonZero, 1)
	n.ports = append(n.ports, p.ports...)
}

func (n *nodeInfo) remove(p *podInfo) {
	i := slices.IndexFunc(n.pods, func(o *podInfo) bool { return o.pod.UID == p.pod.UID })
	if i < 0 {
		return
	}
	n.pods = slices.Delete(n.pods, i, i+1)
	n.requested.add(&p.requests, -1)
	n.nonZero.add(&p.nonZero, -1)
	for _, port := range p.ports {
		if i := slices.Index(n.ports, port); i >= 0 {
			n.ports = slices.Delete(n.ports, i, i+1)
		}
	}
}

func (n *nodeInfo) zone() string {
	if n.node == nil {
		return ""
	}
	return n.node.Labels[corev1.LabelTopologyRegion] + "/" + n.node.Labels[corev1.LabelTopologyZone]
}
