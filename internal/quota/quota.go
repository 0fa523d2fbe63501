// Package quota knows what objects cost in terms of a ResourceQuota: which resources one object uses, which quotas it falls
// under by their scopes, and what a quota wants it to specify. Admission charges new objects by it, the quota controller
// counts present ones by it.
package quota

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/storage/volume"
)

const (
	countPrefix  = "count/"
	classSuffix  = ".storageclass.storage.k8s.io/"
	claims       = "persistentvolumeclaims"
	storageClaim = "requests.storage"
)

// one is the cost of existing. Quantities are values; each use gets its own.
func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// Counted reports whether objects of a kind can fall under hard at all, without looking at one.
func Counted(gr schema.GroupResource, hard corev1.ResourceList) bool {
	for name := range hard {
		if Concerns(gr, name) {
			return true
		}
	}
	return false
}

// Concerns reports whether objects of a kind use the named quota resource.
func Concerns(gr schema.GroupResource, name corev1.ResourceName) bool {
	text := string(name)
	if count, ok := strings.CutPrefix(text, countPrefix); ok {
		return count == gr.String()
	}
	if gr.Group != "" {
		return false
	}
	switch gr.Resource {
	case "pods":
		return text == "pods" || computeName(text)
	case claims:
		return text == claims || text == storageClaim || strings.Contains(text, classSuffix)
	case "services":
		return text == "services" || text == "services.nodeports" || text == "services.loadbalancers"
	case "replicationcontrollers", "resourcequotas", "secrets", "configmaps":
		return text == gr.Resource
	}
	return false
}

// computeName: cpu, memory, ephemeral-storage, their requests and limits, huge pages and requests of extended resources.
func computeName(name string) bool {
	if rest, ok := strings.CutPrefix(name, "requests."); ok {
		return name != storageClaim && (compute(rest) || strings.Contains(rest, "/"))
	}
	if rest, ok := strings.CutPrefix(name, "limits."); ok {
		return compute(rest)
	}
	return compute(name)
}

func compute(name string) bool {
	return name == "cpu" || name == "memory" || name == "ephemeral-storage" || strings.HasPrefix(name, "hugepages-")
}

// Usage is what one object uses at a moment.
func Usage(gr schema.GroupResource, obj runtime.Object, now time.Time) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceName(countPrefix + gr.String()): one()}
	if gr.Group != "" {
		return out
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		podUsage(o, now, out)
	case *corev1.PersistentVolumeClaim:
		claimUsage(o, out)
	case *corev1.Service:
		serviceUsage(o, out)
	default:
		switch gr.Resource {
		case "replicationcontrollers", "resourcequotas", "secrets", "configmaps":
			out[corev1.ResourceName(gr.Resource)] = one()
		}
	}
	return out
}

// Finished reports whether a pod no longer uses compute resources: it has ended, or should have by now.
func Finished(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return false
	}
	return now.After(pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second))
}

func podUsage(pod *corev1.Pod, now time.Time, out corev1.ResourceList) {
	if Finished(pod, now) {
		return
	}
	out[corev1.ResourcePods] = one()
	for name, q := range helpers.PodRequests(pod, helpers.PodResourcesOptions{UseStatusResources: true}) {
		plain := compute(string(name))
		if plain {
			out[name] = q
		}
		if plain || strings.Contains(string(name), "/") {
			out["requests."+name] = q.DeepCopy()
		}
	}
	for name, q := range helpers.PodLimits(pod, helpers.PodResourcesOptions{UseStatusResources: true}) {
		if compute(string(name)) && !strings.HasPrefix(string(name), "hugepages-") {
			out["limits."+name] = q
		}
	}
}

func claimUsage(claim *corev1.PersistentVolumeClaim, out corev1.ResourceList) {
	out[claims] = one()
	class := volume.GetPersistentVolumeClaimClass(claim)
	if class != "" {
		out[corev1.ResourceName(class+classSuffix+claims)] = one()
	}
	size, ok := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated, has := claim.Status.AllocatedResources[corev1.ResourceStorage]; has && allocated.Cmp(size) > 0 {
		size, ok = allocated, true
	}
	if !ok {
		return
	}
	out[storageClaim] = size.DeepCopy()
	if class != "" {
		out[corev1.ResourceName(class+classSuffix+storageClaim)] = size.DeepCopy()
	}
}

func serviceUsage(service *corev1.Service, out corev1.ResourceList) {
	out[corev1.ResourceServices] = one()
	zero := *resource.NewQuantity(0, resource.DecimalSI)
	out[corev1.ResourceServicesNodePorts], out[corev1.ResourceServicesLoadBalancers] = zero, zero
	ports := int64(len(service.Spec.Ports))
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
	case corev1.ServiceTypeLoadBalancer:
		out[corev1.ResourceServicesLoadBalancers] = one()
		if allocate := service.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			ports = 0
			for _, p := range service.Spec.Ports {
				if p.NodePort != 0 {
					ports++
				}
			}
		}
	default:
		return
	}
	out[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
}

// Missing returns, by resource of a quota, the containers of a pod that have to specify it and do not.
func Missing(hard corev1.ResourceList, pod *corev1.Pod) map[corev1.ResourceName][]string {
	out := map[corev1.ResourceName][]string{}
	for name := range hard {
		base, limit := string(name), false
		if rest, ok := strings.CutPrefix(base, "limits."); ok {
			base, limit = rest, true
		} else {
			base = strings.TrimPrefix(base, "requests.")
		}
		if base != "cpu" && base != "memory" {
			continue
		}
		specifies := func(r *corev1.ResourceRequirements) bool {
			list := r.Requests
			if limit {
				list = r.Limits
			}
			_, ok := list[corev1.ResourceName(base)]
			return ok
		}
		if pod.Spec.Resources != nil && specifies(pod.Spec.Resources) {
			continue
		}
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				if c := &containers[i]; !specifies(&c.Resources) && !slices.Contains(out[name], c.Name) {
					out[name] = append(out[name], c.Name)
				}
			}
		}
		slices.Sort(out[name])
	}
	return out
}
