package core

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func validatePod(obj api.Object) field.ErrorList {
	pod := obj.(*corev1.Pod)
	var p problems
	p.podOfItsOwn(pod)
	spec := field.NewPath("spec")
	if len(pod.Spec.EphemeralContainers) > 0 {
		p.forbidden(spec.Child("ephemeralContainers"), "cannot be set on create")
	}
	if pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0 {
		p.forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
	p.appArmorAgreement(&pod.ObjectMeta, &pod.Spec, spec)
	return p.list
}

// podOfItsOwn holds for pods but not for templates, on create and on update.
func (p *problems) podOfItsOwn(pod *corev1.Pod) {
	spec := field.NewPath("spec")
	p.podAnnotations(&pod.ObjectMeta, &pod.Spec, field.NewPath("metadata").Child("annotations"))
	p.all(ValidatePodSpec(&pod.Spec, &pod.ObjectMeta, spec))
	for i, c := range pod.Spec.Containers {
		p.trimmed(spec.Child("containers").Index(i).Child("image"), c.Image)
	}
	for i, c := range pod.Spec.InitContainers {
		p.trimmed(spec.Child("initContainers").Index(i).Child("image"), c.Image)
	}
	if q := pod.Status.QOSClass; q != "" && q != QOSClass(pod) {
		p.invalid(field.NewPath("status", "qosClass"), q, "Pod QOS is immutable")
	}
}

func (p *problems) trimmed(path *field.Path, image string) {
	if image != strings.TrimSpace(image) {
		p.invalid(path, image, "must not have leading or trailing whitespace")
	}
}

// ValidatePodTemplate returns what is wrong with a pod template found at path.
func ValidatePodTemplate(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	var p problems
	p.all(metavalidation.ValidateLabels(t.Labels, path.Child("labels")))
	p.annotations(t.Annotations, path.Child("annotations"))
	p.podAnnotations(&t.ObjectMeta, &t.Spec, path.Child("annotations"))
	spec := path.Child("spec")
	p.all(ValidatePodSpec(&t.Spec, &t.ObjectMeta, spec))
	p.appArmorAgreement(&t.ObjectMeta, &t.Spec, spec)
	if len(t.Spec.EphemeralContainers) > 0 {
		p.forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")
	}
	return p.list
}

// ValidatePodSpec returns what is wrong with a pod spec found at path, of a pod or template with the metadata.
func ValidatePodSpec(spec *corev1.PodSpec, meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	var p problems
	volumes := p.volumes(spec, path.Child("volumes"))
	c := containerContext{spec: spec, volumes: volumes, claims: p.resourceClaims(spec, path.Child("resourceClaims"))}
	if spec.TerminationGracePeriodSeconds != nil {
		c.grace = *spec.TerminationGracePeriodSeconds
	}
	p.containers(&c, path)
	p.podResources(spec, path)

	exactlyOneOf(&p, path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	exactlyOneOf(&p, path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	p.all(metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector")))
	p.podSecurity(spec, path)
	p.affinity(spec.Affinity, path.Child("affinity"))
	p.dnsConfig(spec, path.Child("dnsConfig"))
	for i, gate := range spec.ReadinessGates {
		p.qualified(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType))
	}
	p.schedulingGates(spec.SchedulingGates, path.Child("schedulingGates"))
	p.spread(spec.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))
	p.tolerations(spec.Tolerations, path.Child("tolerations"))
	p.hostAliases(spec.HostAliases, path.Child("hostAliases"))
	p.podNames(spec, path)

	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		p.invalid(path.Child("activeDeadlineSeconds"), *d, utilvalidation.InclusiveRangeError(1, math.MaxInt32))
	}
	optional(&p, path.Child("preemptionPolicy"), spec.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	p.quantities(spec.Overhead, path.Child("overhead").Child("limits"))
	if spec.OS != nil {
		p.operatingSystem(spec, path)
	}
	return p.list
}

func (p *problems) podNames(spec *corev1.PodSpec, path *field.Path) {
	for _, f := range []struct{ name, value string }{
		{"serviceAccountName", spec.ServiceAccountName},
		{"nodeName", spec.NodeName},
		{"priorityClassName", spec.PriorityClassName},
	} {
		if f.value != "" {
			p.messages(path.Child(f.name), f.value, utilvalidation.IsDNS1123Subdomain(f.value))
		}
	}
	if spec.RuntimeClassName != nil {
		p.messages(path.Child("runtimeClassName"), *spec.RuntimeClassName, utilvalidation.IsDNS1123Subdomain(*spec.RuntimeClassName))
	}
	for _, f := range []struct{ name, value string }{{"hostname", spec.Hostname}, {"subdomain", spec.Subdomain}} {
		if f.value != "" {
			p.messages(path.Child(f.name), f.value, utilvalidation.IsDNS1123Label(f.value))
		}
	}
}

func (p *problems) dnsConfig(spec *corev1.PodSpec, path *field.Path) {
	const nameservers, searches, searchCharacters = 3, 32, 2048
	c := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone {
		if c == nil {
			p.required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
		if len(c.Nameservers) == 0 {
			p.required(path.Child("nameservers"), fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))
			return
		}
	}
	if c == nil {
		return
	}
	if len(c.Nameservers) > nameservers {
		p.invalid(path.Child("nameservers"), c.Nameservers, fmt.Sprintf("must not have more than %v nameservers", nameservers))
	}
	for i, ns := range c.Nameservers {
		p.ip(path.Child("nameservers").Index(i), ns)
	}
	if len(c.Searches) > searches {
		p.invalid(path.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %v search paths", searches))
	}
	if len(strings.Join(c.Searches, " ")) > searchCharacters {
		p.invalid(path.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", searchCharacters))
	}
	for i, s := range c.Searches {
		p.messages(path.Child("searches").Index(i), s, utilvalidation.IsDNS1123Subdomain(strings.TrimSuffix(s, ".")))
	}
	for i, o := range c.Options {
		if o.Name == "" {
			p.required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func (p *problems) ip(path *field.Path, ip string) {
	p.all(utilvalidation.IsValidIPForLegacyField(path, ip, false, nil))
}

func (p *problems) schedulingGates(gates []corev1.PodSchedulingGate, path *field.Path) {
	seen := map[string]bool{}
	for i, g := range gates {
		if g.Name == "" {
			p.required(path.Index(i), "must not be empty")
			continue
		}
		p.qualified(path.Index(i), g.Name)
		if seen[g.Name] {
			p.duplicate(path.Index(i), g.Name)
		}
		seen[g.Name] = true
	}
}

func (p *problems) tolerations(tolerations []corev1.Toleration, path *field.Path) {
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			p.all(metavalidation.ValidateLabelName(t.Key, at.Child("key")))
		} else if t.Operator != corev1.TolerationOpExists {
			p.invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			p.invalid(at.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
				p.invalid(at.Child("operator"), t.Value, strings.Join(msgs, ";"))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				p.invalid(at.Child("operator"), t, "value must be empty when `operator` is 'Exists'")
			}
		default:
			oneOf(p, at.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
		}
		p.taintEffect(at.Child("effect"), t.Effect, true)
	}
}

func (p *problems) taintEffect(path *field.Path, effect corev1.TaintEffect, mayBeEmpty bool) {
	valid := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if effect == "" {
		if !mayBeEmpty {
			p.required(path, "")
		}
		return
	}
	oneOf(p, path, effect, valid...)
}

func (p *problems) hostAliases(aliases []corev1.HostAlias, path *field.Path) {
	for i, a := range aliases {
		at := path.Index(i)
		p.ip(at.Child("ip"), a.IP)
		for j, name := range a.Hostnames {
			p.messages(at.Child("hostnames").Index(j), name, utilvalidation.IsDNS1123Subdomain(name))
		}
	}
}

func (p *problems) resourceClaims(spec *corev1.PodSpec, path *field.Path) map[string]bool {
	claims := map[string]bool{}
	for i, c := range spec.ResourceClaims {
		at := path.Index(i)
		p.label(at.Child("name"), c.Name)
		if claims[c.Name] {
			p.duplicate(at.Child("name"), c.Name)
		}
		claims[c.Name] = true
		switch {
		case c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil:
			p.invalid(at, c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil:
			p.invalid(at, c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		case c.ResourceClaimName != nil:
			p.messages(at.Child("resourceClaimName"), *c.ResourceClaimName, utilvalidation.IsDNS1123Subdomain(*c.ResourceClaimName))
		default:
			p.messages(at.Child("resourceClaimTemplateName"), *c.ResourceClaimTemplateName, utilvalidation.IsDNS1123Subdomain(*c.ResourceClaimTemplateName))
		}
	}
	return claims
}

func (p *problems) spread(constraints []corev1.TopologySpreadConstraint, path *field.Path) {
	type pair struct {
		key    string
		action corev1.UnsatisfiableConstraintAction
	}
	seen := map[pair]bool{}
	for i, c := range constraints {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			p.invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than 0")
		}
		if c.TopologyKey == "" {
			p.required(at.Child("topologyKey"), "can not be empty")
		} else {
			p.all(metavalidation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey")))
		}
		if !slices.Contains([]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}, c.WhenUnsatisfiable) {
			p.list = append(p.list, field.NotSupported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable,
				[]corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}))
		}
		id := pair{c.TopologyKey, c.WhenUnsatisfiable}
		if seen[id] {
			p.duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", id.key, id.action))
		}
		seen[id] = true
		if c.MinDomains != nil {
			if *c.MinDomains <= 0 {
				p.invalid(at.Child("minDomains"), *c.MinDomains, "must be greater than 0")
			}
			if c.WhenUnsatisfiable != corev1.DoNotSchedule {
				p.invalid(at.Child("minDomains"), *c.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s",
					corev1.DoNotSchedule, c.WhenUnsatisfiable))
			}
		}
		optional(p, at.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		optional(p, at.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		p.spreadKeys(c, at.Child("matchLabelKeys"))
		p.selector(at.Child("labelSelector"), c.LabelSelector)
	}
}

func (p *problems) spreadKeys(c corev1.TopologySpreadConstraint, path *field.Path) {
	if len(c.MatchLabelKeys) == 0 {
		return
	}
	if c.LabelSelector == nil {
		p.forbidden(path, "must not be specified when labelSelector is not set")
		return
	}
	inSelector := selectorKeys(c.LabelSelector)
	for i, key := range c.MatchLabelKeys {
		p.all(metavalidation.ValidateLabelName(key, path.Index(i)))
		if inSelector[key] {
			p.invalid(path.Index(i), key, "exists in both matchLabelKeys and labelSelector")
		}
	}
}

func selectorKeys(s *metav1.LabelSelector) map[string]bool {
	keys := map[string]bool{}
	for k := range s.MatchLabels {
		keys[k] = true
	}
	for _, e := range s.MatchExpressions {
		keys[e.Key] = true
	}
	return keys
}
