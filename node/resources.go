package node

import (
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/cgroup"
)

// qosClass of a pod: what the API worked out, else what its resources say.
func qosClass(api *corev1.Pod) corev1.PodQOSClass {
	if api.Status.QOSClass != "" {
		return api.Status.QOSClass
	}
	guaranteed, any := true, false
	for _, list := range [][]corev1.Container{api.Spec.InitContainers, api.Spec.Containers} {
		for _, c := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
				if !request.IsZero() || !limit.IsZero() {
					any = true
				}
				if limit.IsZero() || (!request.IsZero() && request.Cmp(limit) != 0) {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// podResources is the sum of a pod's containers, or the most that one of its init containers needs beside the sidecars
// before it, with the overhead.
func podResources(api *corev1.Pod, of func(corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	sum, most, sidecars := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range api.Spec.InitContainers {
		c := &api.Spec.InitContainers[i]
		if sidecar(c) {
			add(sidecars, of(c.Resources))
			raise(most, sidecars)
			continue
		}
		with := corev1.ResourceList{}
		add(with, sidecars)
		add(with, of(c.Resources))
		raise(most, with)
	}
	add(sum, sidecars)
	for _, c := range api.Spec.Containers {
		add(sum, of(c.Resources))
	}
	raise(sum, most)
	add(sum, api.Spec.Overhead)
	return sum
}

func add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name].DeepCopy()
		sum.Add(q)
		to[name] = sum
	}
}

func raise(to, other corev1.ResourceList) {
	for name, q := range other {
		if have, ok := to[name]; !ok || q.Cmp(have) > 0 {
			to[name] = q
		}
	}
}

func requests(r corev1.ResourceRequirements) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range r.Limits {
		out[name] = q
	}
	for name, q := range r.Requests {
		out[name] = q
	}
	return out
}

func limits(r corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }

// podCgroup is what a pod's cgroup is set to. A limit holds for the pod only when every container has one.
func podCgroup(api *corev1.Pod) cgroup.Settings {
	request, limit := podResources(api, requests), podResources(api, limits)
	all := func(name corev1.ResourceName) bool {
		for _, list := range [][]corev1.Container{api.Spec.InitContainers, api.Spec.Containers} {
			for _, c := range list {
				if q := c.Resources.Limits[name]; q.IsZero() {
					return false
				}
			}
		}
		return true
	}
	out := cgroup.Settings{Shares: cgroup.Shares(request.Cpu().MilliValue())}
	if all(corev1.ResourceCPU) {
		out.Quota = cgroup.Quota(limit.Cpu().MilliValue())
	}
	if all(corev1.ResourceMemory) {
		out.Memory = limit.Memory().Value()
	}
	return out
}

// containerResources are a container's shares and limits for the runtime.
func (n *Node) containerResources(api *corev1.Pod, c *corev1.Container) *cri.LinuxContainerResources {
	cpu, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		cpu = c.Resources.Limits[corev1.ResourceCPU]
	}
	out := &cri.LinuxContainerResources{
		CpuShares:          int64(cgroup.Shares(cpu.MilliValue())),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
		OomScoreAdj:        n.oomScore(api, c),
	}
	if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		out.CpuPeriod, out.CpuQuota = cgroup.Period, cgroup.Quota(limit)
	}
	for name, q := range c.Resources.Limits {
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
			out.HugepageLimits = append(out.HugepageLimits, &cri.HugepageLimit{PageSize: strings.Replace(size, "i", "B", 1), Limit: uint64(q.Value())})
		}
	}
	if n.cgroups != nil && n.cgroups.Unified() {
		// On version 2 the whole container ends when one of its processes is out of memory, as upstream sets it up.
		out.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return out
}

// oomScore says how soon the kernel ends a container when the node is out of memory.
func (n *Node) oomScore(api *corev1.Pod, c *corev1.Container) int64 {
	clamp := func(score int64) int64 {
		if n.Unprivileged {
			return max(score, 0)
		}
		return score
	}
	if api.Spec.Priority != nil && *api.Spec.Priority >= 2000000000 {
		return clamp(-997)
	}
	switch qosClass(api) {
	case corev1.PodQOSGuaranteed:
		return clamp(-997)
	case corev1.PodQOSBestEffort:
		return 1000
	}
	memory := n.capacity()[corev1.ResourceMemory]
	capacity := memory.Value()
	if capacity <= 0 {
		return 999
	}
	request := c.Resources.Requests.Memory().Value()
	score := 1000 - int64(math.Trunc(1000*float64(request)/float64(capacity)))
	return min(max(score, 3), 999)
}
