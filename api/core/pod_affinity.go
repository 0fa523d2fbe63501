package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (p *problems) affinity(a *corev1.Affinity, path *field.Path) {
	if a == nil {
		return
	}
	if a.NodeAffinity != nil {
		p.nodeAffinity(a.NodeAffinity, path.Child("nodeAffinity"))
	}
	if a.PodAffinity != nil {
		p.podAffinity(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAffinity"))
	}
	if a.PodAntiAffinity != nil {
		p.podAffinity(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("podAntiAffinity"))
	}
}

func (p *problems) nodeAffinity(a *corev1.NodeAffinity, path *field.Path) {
	if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		p.all(ValidateNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution,
			path.Child("requiredDuringSchedulingIgnoredDuringExecution")))
	}
	for i, t := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		p.weight(at, t.Weight)
		// Invalid values of a preference match nothing and do no harm, so they are let through.
		p.nodeSelectorTerm(t.Preference, false, at.Child("preference"))
	}
}

func (p *problems) weight(path *field.Path, weight int32) {
	if weight <= 0 || weight > 100 {
		p.invalid(path.Child("weight"), weight, "must be in the range 1-100")
	}
}

// ValidateNodeSelector returns what is wrong with a node selector found at path.
func ValidateNodeSelector(s *corev1.NodeSelector, path *field.Path) field.ErrorList {
	var p problems
	terms := path.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		p.required(terms, "must have at least one node selector term")
	}
	for i, t := range s.NodeSelectorTerms {
		p.nodeSelectorTerm(t, true, terms.Index(i))
	}
	return p.list
}

func (p *problems) nodeSelectorTerm(t corev1.NodeSelectorTerm, checkValues bool, path *field.Path) {
	for i, r := range t.MatchExpressions {
		p.nodeSelectorRequirement(r, checkValues, path.Child("matchExpressions").Index(i))
	}
	for i, r := range t.MatchFields {
		p.nodeFieldRequirement(r, path.Child("matchFields").Index(i))
	}
}

func (p *problems) nodeSelectorRequirement(r corev1.NodeSelectorRequirement, checkValues bool, path *field.Path) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			p.required(path.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			p.forbidden(path.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			p.required(path.Child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
		}
	default:
		p.invalid(path.Child("operator"), r.Operator, "not a valid selector operator")
	}
	p.all(metavalidation.ValidateLabelName(r.Key, path.Child("key")))
	if !checkValues {
		return
	}
	for i, v := range r.Values {
		p.messages(path.Child("values").Index(i), v, utilvalidation.IsValidLabelValue(v))
	}
}

func (p *problems) nodeFieldRequirement(r corev1.NodeSelectorRequirement, path *field.Path) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			p.required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		p.invalid(path.Child("operator"), r.Operator, "not a valid selector operator")
	}
	if r.Key != "metadata.name" {
		p.invalid(path.Child("key"), r.Key, "not a valid field selector key")
		return
	}
	for i, v := range r.Values {
		p.messages(path.Child("values").Index(i), v, validation.NameIsDNSSubdomain(v, false))
	}
}

func (p *problems) podAffinity(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, path *field.Path) {
	for i, t := range required {
		p.podAffinityTerm(t, path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i))
	}
	for i, t := range preferred {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i)
		p.weight(at, t.Weight)
		p.podAffinityTerm(t.PodAffinityTerm, at.Child("podAffinityTerm"))
	}
}

func (p *problems) podAffinityTerm(t corev1.PodAffinityTerm, path *field.Path) {
	p.selector(path.Child("labelSelector"), t.LabelSelector)
	p.selector(path.Child("namespaceSelector"), t.NamespaceSelector)
	for _, ns := range t.Namespaces {
		p.messages(path.Child("namespace"), ns, utilvalidation.IsDNS1123Label(ns))
	}
	p.affinityKeys(t, path)
	if t.TopologyKey == "" {
		p.required(path.Child("topologyKey"), "can not be empty")
	}
	p.all(metavalidation.ValidateLabelName(t.TopologyKey, path.Child("topologyKey")))
}

func (p *problems) affinityKeys(t corev1.PodAffinityTerm, path *field.Path) {
	match, mismatch := path.Child("matchLabelKeys"), path.Child("mismatchLabelKeys")
	if t.LabelSelector == nil {
		for _, f := range []struct {
			path *field.Path
			keys []string
		}{{match, t.MatchLabelKeys}, {mismatch, t.MismatchLabelKeys}} {
			if len(f.keys) > 0 {
				p.forbidden(f.path, "must not be specified when labelSelector is not set")
			}
		}
		return
	}
	for i, key := range t.MatchLabelKeys {
		p.all(metavalidation.ValidateLabelName(key, match.Index(i)))
	}
	inMatch := map[string]bool{}
	for _, key := range t.MatchLabelKeys {
		inMatch[key] = true
	}
	for i, key := range t.MismatchLabelKeys {
		p.all(metavalidation.ValidateLabelName(key, mismatch.Index(i)))
		if inMatch[key] {
			p.invalid(mismatch.Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
	// The selector holds "key In [value]" once more for each matched key: that is how the keys are remembered. Only a
	// key that was in the selector before, and thus is there twice or otherwise, is wrong.
	counts := map[string]int{}
	for key := range t.LabelSelector.MatchLabels {
		counts[key] += 2
	}
	for _, e := range t.LabelSelector.MatchExpressions {
		counts[e.Key]++
	}
	for i, key := range t.MatchLabelKeys {
		if counts[key] > 1 || counts[key] == 1 && !merged(t, key) {
			p.invalid(path.Index(i), key, fmt.Sprintf("exists in both %s and %s", "matchLabelKeys", "labelSelector"))
		}
	}
}
