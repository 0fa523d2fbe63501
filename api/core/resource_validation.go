package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	notNegative = "must be greater than or equal to 0"
	notInteger  = "must be an integer"
)

func (p *problems) resources(r *corev1.ResourceRequirements, claims map[string]bool, path *field.Path) {
	limits, requests := path.Child("limits"), path.Child("requests")
	cpuOrMemory, hugePages := false, false
	for _, name := range sortedNames(r.Limits) {
		p.containerResource(name, limits.Key(string(name)))
		p.quantity(name, r.Limits[name], limits.Key(string(name)))
		hugePages = hugePages || isHugePage(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	for _, name := range sortedNames(r.Requests) {
		request := r.Requests[name]
		p.containerResource(name, requests.Key(string(name)))
		p.quantity(name, request, requests.Key(string(name)))
		p.within(name, request, r.Limits, requests, limits)
		hugePages = hugePages || isHugePage(name)
		cpuOrMemory = cpuOrMemory || name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	if hugePages && !cpuOrMemory {
		p.forbidden(path, "HugePages require cpu or memory")
	}
	seen := map[corev1.ResourceClaim]bool{}
	for i, c := range r.Claims {
		at := path.Child("claims").Index(i)
		if !p.some(at.Child("name"), c.Name) {
			continue
		}
		if seen[c] {
			p.duplicate(at, c)
		}
		seen[c] = true
		if !claims[c.Name] {
			p.notFound(at.Child("name"), c.Name)
		}
	}
}

// within checks a request against the limit of the same resource.
func (p *problems) within(name corev1.ResourceName, request resource.Quantity, all corev1.ResourceList, requests, limits *field.Path) {
	limit, ok := all[name]
	switch {
	case ok && !overcommits(name) && request.Cmp(limit) != 0:
		p.invalid(requests, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case ok && request.Cmp(limit) > 0:
		p.invalid(requests, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
	case !ok && !overcommits(name):
		p.required(limits, "Limit must be set for non overcommitable resources")
	}
}

// quantities checks amounts of resources, as those of a pod's overhead.
func (p *problems) quantities(list corev1.ResourceList, path *field.Path) {
	for _, name := range sortedNames(list) {
		p.containerResource(name, path.Key(string(name)))
		p.quantity(name, list[name], path.Key(string(name)))
	}
}

func (p *problems) quantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) {
	if q.Sign() < 0 {
		p.invalid(path, q.String(), notNegative)
	}
	if integerResource(name) && q.MilliValue()%1000 != 0 {
		p.invalid(path, q.String(), notInteger)
	}
	if isHugePage(name) {
		size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
		if err == nil && size.Value() > 0 && (q.Value()%size.Value() != 0) {
			p.invalid(path, q.String(), fmt.Sprintf("must be a positive multiple of the page size %s", size.String()))
		}
	}
}

func (p *problems) containerResource(name corev1.ResourceName, path *field.Path) {
	if !p.resourceName(name, path) {
		return
	}
	switch {
	case !strings.Contains(string(name), "/"):
		if !standardContainerResource(name) && !isHugePage(name) {
			p.invalid(path, string(name), "must be a standard resource for containers")
		}
	case !isNative(name) && !isExtended(name):
		p.invalid(path, string(name), "doesn't follow extended resource name standard")
	}
}

// resourceName checks a name as such: a standard one or one with a domain.
func (p *problems) resourceName(name corev1.ResourceName, path *field.Path) bool {
	if msgs := utilvalidation.IsQualifiedName(string(name)); len(msgs) > 0 {
		p.messages(path, string(name), msgs)
		return false
	}
	if !strings.Contains(string(name), "/") && !standardResource(name) {
		p.invalid(path, string(name), "must be a standard resource type or fully qualified")
		return false
	}
	return true
}

func standardContainerResource(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}, name)
}

// standardResource holds for all names without a domain that mean something, quotas included.
func standardResource(name corev1.ResourceName) bool {
	return standardContainerResource(name) || standardQuotaResource(name) || name == corev1.ResourceStorage || isHugePage(name)
}

func integerResource(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}, name) || isExtended(name)
}

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// isNative says whether a resource belongs to Kubernetes itself; the others are extended resources.
func isNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

func isExtended(name corev1.ResourceName) bool {
	if isNative(name) || strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	// A quota for it must have a valid name too.
	return len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// overcommits says whether requests may be less than limits.
func overcommits(name corev1.ResourceName) bool { return isNative(name) && !isHugePage(name) }

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// podResources checks the resources of the pod as a whole.
func (p *problems) podResources(spec *corev1.PodSpec, path *field.Path) {
	r := spec.Resources
	if r == nil {
		return
	}
	at := path.Child("resources")
	limits, requests := at.Child("limits"), at.Child("requests")
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		p.forbidden(at, "may not be set for a windows pod")
		return
	}
	if len(r.Claims) > 0 {
		p.forbidden(at.Child("claims"), "claims cannot be set for Resources at pod-level")
	}
	supported := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceHugePagesPrefix + "<size>"}
	for _, part := range []struct {
		list corev1.ResourceList
		path *field.Path
	}{{r.Limits, limits}, {r.Requests, requests}} {
		for _, name := range sortedNames(part.list) {
			if !podLevelResource(name) {
				p.list = append(p.list, field.NotSupported(part.path.Key(string(name)), name, supported))
			}
			p.quantity(name, part.list[name], part.path.Key(string(name)))
		}
	}
	for _, name := range sortedNames(r.Requests) {
		p.within(name, r.Requests[name], r.Limits, requests, limits)
	}
	together := containerRequests(spec)
	for _, name := range sortedNames(r.Requests) {
		request, sum := r.Requests[name], together[name]
		if request.Cmp(sum) < 0 {
			p.invalid(requests.Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String()))
		}
	}
	limitSums := aggregate(spec, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits })
	for _, name := range sortedNames(r.Limits) {
		limit := r.Limits[name]
		if sum := limitSums[name]; isHugePage(name) && limit.Cmp(sum) < 0 {
			p.invalid(limits.Key(string(name)), limit.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String()))
		}
		p.containerLimits(spec.Containers, name, limit, at.Child("containers"))
		p.containerLimits(spec.InitContainers, name, limit, at.Child("initContainers"))
	}
}

func (p *problems) containerLimits(containers []corev1.Container, name corev1.ResourceName, limit resource.Quantity, path *field.Path) {
	for i, c := range containers {
		if l, ok := c.Resources.Limits[name]; ok && l.Cmp(limit) > 0 {
			p.invalid(path.Index(i).Key(string(name)).Child("limits"), l.String(),
				fmt.Sprintf("must be less than or equal to pod limits of %s", limit.String()))
		}
	}
}
