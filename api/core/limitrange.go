package core

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func limitRanges() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("LimitRange"),
		Plural:           "limitranges",
		Singular:         "limitrange",
		ShortNames:       []string{"limits"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.LimitRange) },
		NewList:          func() runtime.Object { return new(corev1.LimitRangeList) },
		CreateOnUpdate:   true,
		Default:          defaultLimitRange,
		Validate:         validateLimitRange,
	}
}

// defaultLimitRange derives the defaults for containers from the bounds: the limit from the maximum, the request from
// the default limit, else from the minimum.
func defaultLimitRange(obj api.Object) {
	lr := obj.(*corev1.LimitRange)
	for i := range lr.Spec.Limits {
		item := &lr.Spec.Limits[i]
		for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
			roundUp(list)
		}
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		fill := func(to *corev1.ResourceList, from corev1.ResourceList) {
			for name, q := range from {
				if _, ok := (*to)[name]; !ok {
					setResource(to, name, q)
				}
			}
		}
		fill(&item.Default, item.Max)
		fill(&item.DefaultRequest, item.Default)
		fill(&item.DefaultRequest, item.Min)
	}
}

func validateLimitRange(obj api.Object) field.ErrorList {
	lr := obj.(*corev1.LimitRange)
	var p problems
	path := field.NewPath("spec", "limits")
	types := map[corev1.LimitType]bool{}
	for i := range lr.Spec.Limits {
		item, at := &lr.Spec.Limits[i], path.Index(i)
		p.limitType(item.Type, at.Child("type"))
		if types[item.Type] {
			p.duplicate(at.Child("type"), item.Type)
		}
		types[item.Type] = true
		p.limitItem(item, at)
	}
	return p.list
}

func (p *problems) limitType(t corev1.LimitType, path *field.Path) {
	if msgs := utilvalidation.IsQualifiedName(string(t)); len(msgs) > 0 {
		p.messages(path, t, msgs)
		return
	}
	standard := []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}
	if !slices.Contains(standard, t) && !slices.Contains([]byte(t), '/') {
		p.invalid(path, t, "must be a standard limit type or fully qualified")
	}
}

func (p *problems) limitItem(item *corev1.LimitRangeItem, path *field.Path) {
	names := map[corev1.ResourceName]bool{}
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"max", item.Max}, {"min", item.Min}, {"default", item.Default}, {"defaultRequest", item.DefaultRequest},
		{"maxLimitRequestRatio", item.MaxLimitRequestRatio}} {
		for _, name := range sortedNames(part.list) {
			p.limitResource(item.Type, name, path.Child(part.name).Key(string(name)))
			names[name] = true
		}
	}
	if item.Type == corev1.LimitTypePod {
		if len(item.Default) > 0 {
			p.forbidden(path.Child("default"), "may not be specified when `type` is 'Pod'")
		}
		if len(item.DefaultRequest) > 0 {
			p.forbidden(path.Child("defaultRequest"), "may not be specified when `type` is 'Pod'")
		}
	}
	if item.Type == corev1.LimitTypePersistentVolumeClaim {
		_, low := item.Min[corev1.ResourceStorage]
		_, high := item.Max[corev1.ResourceStorage]
		if !low && !high {
			p.required(path, "either minimum or maximum storage value is required, but neither was provided")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p.limitOrder(item, name, path)
	}
}

// limitOrder checks min <= defaultRequest <= default <= max, and the ratio.
func (p *problems) limitOrder(item *corev1.LimitRangeItem, name corev1.ResourceName, path *field.Path) {
	type bound struct {
		field, word string
		list        corev1.ResourceList
	}
	ordered := []bound{
		{"min", "min", item.Min}, {"defaultRequest", "default request", item.DefaultRequest},
		{"default", "default", item.Default}, {"max", "max", item.Max},
	}
	for i, low := range ordered {
		a, ok := low.list[name]
		if !ok {
			continue
		}
		for _, high := range ordered[i+1:] {
			b, ok := high.list[name]
			if !ok || a.Cmp(b) <= 0 {
				continue
			}
			at := path.Child(low.field).Key(string(name))
			p.invalid(at, a.String(), fmt.Sprintf("%s value %s is greater than %s value %s", low.word, a.String(), high.word, b.String()))
		}
	}
	ratio, ok := item.MaxLimitRequestRatio[name]
	if !ok {
		return
	}
	at := path.Child("maxLimitRequestRatio").Key(string(name))
	if ratio.Cmp(resource.MustParse("1")) < 0 {
		p.invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String()))
	}
	low, hasLow := item.Min[name]
	high, hasHigh := item.Max[name]
	if hasLow && hasHigh && low.AsApproximateFloat64() > 0 {
		if most := high.AsApproximateFloat64() / low.AsApproximateFloat64(); ratio.AsApproximateFloat64() > most {
			p.invalid(at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), most))
		}
	}
	if !overcommits(name) {
		d, hasDefault := item.Default[name]
		r, hasRequest := item.DefaultRequest[name]
		if hasDefault && hasRequest && d.Cmp(r) != 0 {
			p.invalid(path.Child("defaultRequest").Key(string(name)), r.String(),
				fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", d.String(), r.String(), name))
		}
	}
}
