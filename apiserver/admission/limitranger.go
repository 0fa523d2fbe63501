package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	helpers "k8s.io/component-helpers/resource"

	"proa/client"
)

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// LimitRanger fills in the default requests and limits of a namespace, and holds pods and claims to its bounds.
type LimitRanger struct {
	limits client.TypedLister[*corev1.LimitRange]
}

// NewLimitRanger returns the plugin.
func NewLimitRanger(c client.Interface) *LimitRanger {
	return &LimitRanger{client.For[*corev1.LimitRange](c).Lister(context.Background())}
}

// Name of the plugin.
func (*LimitRanger) Name() string { return "LimitRanger" }

// Admit fills in defaults.
func (p *LimitRanger) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "pods", "", Create) {
		return nil
	}
	pod := a.Object.(*corev1.Pod)
	var set []string
	for limitRange := range p.limits.All(a.Namespace) {
		if limitRange.DeletionTimestamp != nil {
			continue
		}
		for _, item := range limitRange.Spec.Limits {
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			for i := range pod.Spec.Containers {
				set = append(set, fillContainer(&pod.Spec.Containers[i], &item, "container")...)
			}
			for i := range pod.Spec.InitContainers {
				set = append(set, fillContainer(&pod.Spec.InitContainers[i], &item, "init container")...)
			}
		}
	}
	if len(set) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	}
	return nil
}

func fillContainer(c *corev1.Container, item *corev1.LimitRangeItem, kind string) []string {
	var out []string
	fill := func(list *corev1.ResourceList, defaults corev1.ResourceList, what string) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(defaults)) {
			if _, ok := (*list)[name]; ok {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = defaults[name].DeepCopy()
			names = append(names, string(name))
		}
		if len(names) > 0 {
			out = append(out, strings.Join(names, ", ")+" "+what+" for "+kind+" "+c.Name)
		}
	}
	fill(&c.Resources.Requests, item.DefaultRequest, "request")
	fill(&c.Resources.Limits, item.Default, "limit")
	return out
}

// Validate checks the bounds.
func (p *LimitRanger) Validate(_ context.Context, a *Attributes) error {
	pods := on(a, "pods", "", Create) || on(a, "pods", "resize", Update)
	claims := on(a, "persistentvolumeclaims", "", Create, Update)
	if !pods && !claims || a.Object.GetDeletionTimestamp() != nil {
		return nil
	}
	for limitRange := range p.limits.All(a.Namespace) {
		if limitRange.DeletionTimestamp != nil {
			continue
		}
		var errs []error
		for i := range limitRange.Spec.Limits {
			item := &limitRange.Spec.Limits[i]
			switch obj := a.Object.(type) {
			case *corev1.Pod:
				errs = append(errs, checkPod(obj, item)...)
			case *corev1.PersistentVolumeClaim:
				if item.Type == corev1.LimitTypePersistentVolumeClaim {
					errs = append(errs, checkClaim(obj, item)...)
				}
			}
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return forbid(a, err)
		}
	}
	return nil
}

func checkPod(pod *corev1.Pod, item *corev1.LimitRangeItem) []error {
	var errs []error
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				errs = append(errs, checkBounds(item, list[i].Resources.Requests, list[i].Resources.Limits)...)
			}
		}
	case corev1.LimitTypePod:
		options := helpers.PodResourcesOptions{ExcludeOverhead: true}
		errs = checkBounds(item, helpers.PodRequests(pod, options), helpers.PodLimits(pod, options))
	}
	return errs
}

func checkClaim(claim *corev1.PersistentVolumeClaim, item *corev1.LimitRangeItem) []error {
	var errs []error
	requests := claim.Spec.Resources.Requests
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		errs = append(errs, minimum(item.Type, name, item.Min[name], requests, corev1.ResourceList{}))
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		bound := item.Max[name]
		request, ok := requests[name]
		text := fmt.Sprintf("maximum %s usage per %s is %s", name, item.Type, bound.String())
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%s.  No request is specified", text))
		case request.Cmp(bound) > 0:
			errs = append(errs, fmt.Errorf("%s, but request is %s", text, request.String()))
		}
	}
	return errs
}

func checkBounds(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		errs = append(errs, minimum(item.Type, name, item.Min[name], requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		errs = append(errs, maximum(item.Type, name, item.Max[name], requests, limits))
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		errs = append(errs, ratio(item.Type, name, item.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func minimum(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	text := fmt.Sprintf("minimum %s usage per %s is %s", name, kind, bound.String())
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", text)
	case request.Cmp(bound) < 0:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	case limited && limit.Cmp(bound) < 0:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	}
	return nil
}

func maximum(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, requested := requests[name]
	limit, limited := limits[name]
	text := fmt.Sprintf("maximum %s usage per %s is %s", name, kind, bound.String())
	switch {
	case !limited:
		return fmt.Errorf("%s.  No limit is specified", text)
	case limit.Cmp(bound) > 0:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	case requested && request.Cmp(bound) > 0:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	}
	return nil
}

func ratio(kind corev1.LimitType, name corev1.ResourceName, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name]
	text := fmt.Sprintf("%s max limit to request ratio per %s is %s", name, kind, bound.String())
	switch {
	case request.IsZero():
		return fmt.Errorf("%s, but no request is specified or request is 0", text)
	case limit.IsZero():
		return fmt.Errorf("%s, but no limit is specified or limit is 0", text)
	}
	if provided := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); provided > bound.AsApproximateFloat64() {
		return fmt.Errorf("%s, but provided ratio is %f", text, provided)
	}
	return nil
}
