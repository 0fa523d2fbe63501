package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass computes the quality of service class of a pod from the cpu and memory of its containers, or of the pod as a
// whole where that is given. Ephemeral containers do not count.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass {
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return qosOf([]*corev1.ResourceRequirements{r})
	}
	var all []*corev1.ResourceRequirements
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i].Resources)
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i].Resources)
	}
	return qosOf(all)
}

func qosOf(all []*corev1.ResourceRequirements) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	guaranteed := true
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q := r.Requests[name]; q.Sign() > 0 {
				add(requests, name, q)
			}
			if q := r.Limits[name]; q.Sign() > 0 {
				add(limits, name, q)
			} else {
				guaranteed = false
			}
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	if guaranteed && len(limits) == 2 {
		for name, request := range requests {
			if limit := limits[name]; limit.Cmp(request) != 0 {
				return corev1.PodQOSBurstable
			}
		}
		if len(requests) == len(limits) {
			return corev1.PodQOSGuaranteed
		}
	}
	return corev1.PodQOSBurstable
}

func add(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	sum := list[name]
	sum.Add(q)
	list[name] = sum
}

// containerRequests is what all containers of a pod request together at their peak: the running containers with the
// sidecars, or an init container with the sidecars started before it, whichever is larger.
func containerRequests(spec *corev1.PodSpec) corev1.ResourceList {
	return aggregate(spec, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests })
}

func aggregate(spec *corev1.PodSpec, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	total := corev1.ResourceList{}
	for i := range spec.Containers {
		addAll(total, of(&spec.Containers[i]))
	}
	sidecars, peak := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		step := sidecars.DeepCopy()
		addAll(step, of(c))
		if isSidecar(c) {
			sidecars = step
		}
		raise(peak, step)
	}
	addAll(total, sidecars)
	raise(total, peak)
	return total
}

func addAll(list, more corev1.ResourceList) {
	for name, q := range more {
		add(list, name, q)
	}
}

// raise lifts the quantities of list to at least those of other.
func raise(list, other corev1.ResourceList) {
	for name, q := range other {
		if have, ok := list[name]; !ok || q.Cmp(have) > 0 {
			list[name] = q.DeepCopy()
		}
	}
}

// isSidecar says whether an init container keeps running beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// podLevelResource says whether requests and limits of name may be given for the pod as a whole.
func podLevelResource(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}, name) ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
