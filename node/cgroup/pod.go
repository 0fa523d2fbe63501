package cgroup

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa/api/core"
)

// PodSettings are what a pod's cgroup is set to: its share of the CPU is what it requests, and it is limited as a whole
// in what all of its containers are limited in.
func PodSettings(pod *corev1.Pod) Settings {
	if core.QOSClass(pod) == corev1.PodQOSBestEffort {
		return Settings{Shares: MinShares}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	unlimitedCPU, unlimitedMemory := false, false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			own := list[i].Resources.Limits
			unlimitedCPU = unlimitedCPU || own.Cpu().IsZero()
			unlimitedMemory = unlimitedMemory || own.Memory().IsZero()
		}
	}
	if r := pod.Spec.Resources; r != nil {
		unlimitedCPU = unlimitedCPU && r.Limits.Cpu().IsZero()
		unlimitedMemory = unlimitedMemory && r.Limits.Memory().IsZero()
	}
	s := Settings{Shares: Shares(requests.Cpu().MilliValue())}
	if !unlimitedCPU {
		s.Quota = Quota(limits.Cpu().MilliValue())
	}
	if !unlimitedMemory {
		s.Memory = limits.Memory().Value()
	}
	for name, limit := range limits {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		if size, err := resource.ParseQuantity(text); err == nil {
			if s.HugePages == nil {
				s.HugePages = map[string]int64{}
			}
			s.HugePages[pageSize(size.Value())] = limit.Value()
		}
	}
	return s
}

// pageSize is a size of huge pages as the kernel names its files.
func pageSize(bytes int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GB", 1 << 30}, {"MB", 1 << 20}, {"KB", 1 << 10}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return fmt.Sprintf("%d%s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%dB", bytes)
}
