package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func resourceQuotas() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("ResourceQuota"),
		Plural:           "resourcequotas",
		Singular:         "resourcequota",
		ShortNames:       []string{"quota"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.ResourceQuota) },
		NewList:          func() runtime.Object { return new(corev1.ResourceQuotaList) },
		Subresources:     []api.Subresource{api.Status()},
		Default: func(obj api.Object) {
			q := obj.(*corev1.ResourceQuota)
			roundUp(q.Spec.Hard)
			roundUp(q.Status.Hard)
			roundUp(q.Status.Used)
		},
		Validate:             validateResourceQuota,
		ValidateUpdate:       validateResourceQuotaUpdate,
		ValidateStatusUpdate: validateResourceQuotaStatus,
		Columns: []api.Column{
			api.NameColumn(),
			api.AgeColumn(),
			api.Text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
			api.Text("Limit", "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."),
		},
		Cells: resourceQuotaCells,
	}
}

func standardQuotaResource(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage, corev1.ResourcePods,
		corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
		corev1.ResourcePersistentVolumeClaims, corev1.ResourceConfigMaps, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers,
	}, name) || isHugePage(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

func (p *problems) quotaResource(name corev1.ResourceName, path *field.Path) {
	if !p.resourceName(name, path) {
		return
	}
	if !strings.Contains(string(name), "/") && !standardQuotaResource(name) {
		p.invalid(path, string(name), "must be a standard resource for quota")
	}
}

func (p *problems) quotaList(list corev1.ResourceList, path *field.Path) {
	for _, name := range sortedNames(list) {
		at := path.Key(string(name))
		p.quotaResource(name, at)
		q := list[name]
		if q.Sign() < 0 {
			p.invalid(at, q.String(), notNegative)
		}
		if integerResource(name) && q.MilliValue()%1000 != 0 {
			p.invalid(at, q.String(), notInteger)
		}
	}
}

func validateResourceQuota(obj api.Object) field.ErrorList {
	q := obj.(*corev1.ResourceQuota)
	var p problems
	path := field.NewPath("spec")
	p.quotaList(q.Spec.Hard, path.Child("hard"))
	seen := map[corev1.ResourceQuotaScope]bool{}
	for _, scope := range q.Spec.Scopes {
		p.quotaScope(scope, q.Spec.Hard, path.Child("scopes"))
		seen[scope] = true
	}
	p.scopeConflicts(seen, q.Spec.Scopes, path.Child("scopes"))
	if q.Spec.ScopeSelector != nil {
		p.scopeSelector(q, path.Child("scopeSelector", "matchExpressions"))
	}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"hard", q.Status.Hard}, {"used", q.Status.Used}} {
		p.quotaList(part.list, field.NewPath("status", part.name))
	}
	return p.list
}

func (p *problems) scopeConflicts(seen map[corev1.ResourceQuotaScope]bool, value any, path *field.Path) {
	for _, pair := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if seen[pair[0]] && seen[pair[1]] {
			p.invalid(path, value, "conflicting scopes")
		}
	}
}

// quotaScope checks that a scope is known and can tell apart the objects that are counted.
func (p *problems) quotaScope(scope corev1.ResourceQuotaScope, hard corev1.ResourceList, path *field.Path) {
	switch scope {
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeBestEffort,
		corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass:
	default:
		p.invalid(path, scope, "unsupported scope")
		return
	}
	for _, name := range sortedNames(hard) {
		var ok bool
		switch scope {
		case corev1.ResourceQuotaScopeBestEffort:
			ok = name == corev1.ResourcePods
		case corev1.ResourceQuotaScopeVolumeAttributesClass:
			ok = name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
		default:
			ok = name == corev1.ResourcePods || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) || isHugePage(name) ||
				slices.Contains([]corev1.ResourceName{
					corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceRequestsCPU,
					corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU,
					corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
				}, name)
		}
		if standardQuotaResource(name) && !ok {
			p.invalid(path, scope, "unsupported scope applied to resource")
			return
		}
	}
}

func (p *problems) scopeSelector(q *corev1.ResourceQuota, path *field.Path) {
	seen := map[corev1.ResourceQuotaScope]bool{}
	for _, e := range q.Spec.ScopeSelector.MatchExpressions {
		p.quotaScope(e.ScopeName, q.Spec.Hard, path.Child("scopeName"))
		switch e.ScopeName {
		case corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass:
		default:
			if e.Operator != corev1.ScopeSelectorOpExists {
				p.invalid(path.Child("operator"), e.Operator,
					"must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity")
			}
		}
		switch e.Operator {
		case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
			if len(e.Values) == 0 {
				p.required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
			}
		case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				p.invalid(path.Child("values"), e.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
			}
		default:
			p.invalid(path.Child("operator"), e.Operator, "not a valid selector operator")
		}
		seen[e.ScopeName] = true
	}
	p.scopeConflicts(seen, q.Spec.ScopeSelector.MatchExpressions, path)
}

func validateResourceQuotaUpdate(obj, old api.Object) field.ErrorList {
	q, before := obj.(*corev1.ResourceQuota), old.(*corev1.ResourceQuota)
	var p problems
	p.all(validateResourceQuota(q))
	sorted := func(s []corev1.ResourceQuotaScope) []corev1.ResourceQuotaScope {
		return slices.Sorted(slices.Values(s))
	}
	if !slices.Equal(sorted(q.Spec.Scopes), sorted(before.Spec.Scopes)) {
		p.invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, "field is immutable")
	}
	if !equality.Semantic.DeepEqual(q.Spec.ScopeSelector, before.Spec.ScopeSelector) {
		p.invalid(field.NewPath("spec", "scopeSelector"), q.Spec.ScopeSelector, "field is immutable")
	}
	return p.list
}

func validateResourceQuotaStatus(obj, _ api.Object) field.ErrorList {
	q := obj.(*corev1.ResourceQuota)
	var p problems
	p.quotaList(q.Status.Hard, field.NewPath("status", "hard"))
	p.quotaList(q.Status.Used, field.NewPath("status", "used"))
	return p.list
}

func resourceQuotaCells(obj api.Object, now time.Time) []any {
	q := obj.(*corev1.ResourceQuota)
	var requests, limits []string
	for _, name := range sortedNames(q.Status.Hard) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		cell := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.Contains(string(name), "limits") {
			limits = append(limits, cell)
		} else {
			requests = append(requests, cell)
		}
	}
	return []any{q.Name, api.Age(q.CreationTimestamp, now), strings.Join(requests, ", "), strings.Join(limits, ", ")}
}

// limitResource checks the name of a resource in a limit range.
func (p *problems) limitResource(t corev1.LimitType, name corev1.ResourceName, path *field.Path) {
	switch t {
	case corev1.LimitTypePod, corev1.LimitTypeContainer:
		p.containerResource(name, path)
	default:
		p.messages(path, string(name), utilvalidation.IsQualifiedName(string(name)))
	}
}
