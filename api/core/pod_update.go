package core

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func validatePodUpdate(obj, old api.Object) field.ErrorList {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	var p problems
	spec := field.NewPath("spec")
	p.podOfItsOwn(pod)
	p.fixedAnnotations(pod, before, field.NewPath("metadata").Child("annotations"))

	sameShape := true
	if len(pod.Spec.Containers) != len(before.Spec.Containers) {
		p.forbidden(spec.Child("containers"), "pod updates may not add or remove containers")
		sameShape = false
	}
	if len(pod.Spec.InitContainers) != len(before.Spec.InitContainers) {
		p.forbidden(spec.Child("initContainers"), "pod updates may not add or remove containers")
		sameShape = false
	}
	if !sameShape {
		return p.list
	}
	p.deadline(pod.Spec.ActiveDeadlineSeconds, before.Spec.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"))
	p.tolerationsAdded(pod.Spec.Tolerations, before.Spec.Tolerations, spec.Child("tolerations"))
	p.gatesRemoved(pod.Spec.SchedulingGates, before.Spec.SchedulingGates, spec.Child("schedulingGates"))
	gated := len(before.Spec.SchedulingGates) > 0
	if gated {
		p.narrowed(pod, before, spec)
	}
	if len(p.list) > 0 {
		return p.list
	}
	allowed := withUpdatable(pod, before, gated)
	if !equality.Semantic.DeepEqual(allowed.Spec, before.Spec) {
		p.forbidden(spec, fmt.Sprintf("pod updates may not change fields other than %s\n%v",
			strings.Join([]string{
				"`spec.containers[*].image`",
				"`spec.initContainers[*].image`",
				"`spec.activeDeadlineSeconds`",
				"`spec.tolerations` (only additions to existing tolerations)",
				"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
			}, ","), diff.Diff(before.Spec, allowed.Spec)))
	}
	return p.list
}

// withUpdatable is pod with the old values of the fields that an update may change.
func withUpdatable(pod, old *corev1.Pod, gated bool) *corev1.Pod {
	out := pod.DeepCopy()
	for i := range out.Spec.Containers {
		out.Spec.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range out.Spec.InitContainers {
		out.Spec.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	out.Spec.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	out.Spec.SchedulingGates = old.Spec.SchedulingGates
	out.Spec.Tolerations = old.Spec.Tolerations
	now, before := out.Spec.TerminationGracePeriodSeconds, old.Spec.TerminationGracePeriodSeconds
	if now != nil && before != nil && *now == 1 && *before < 0 {
		out.Spec.TerminationGracePeriodSeconds = before
	}
	if !gated {
		return out
	}
	out.Spec.NodeSelector = old.Spec.NodeSelector
	restoreNodeAffinity(out, old)
	return out
}

func restoreNodeAffinity(pod, old *corev1.Pod) {
	var before *corev1.NodeAffinity
	if old.Spec.Affinity != nil {
		before = old.Spec.Affinity.NodeAffinity
	}
	if pod.Spec.Affinity == nil && before == nil {
		return
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.NodeAffinity = before
	if old.Spec.Affinity == nil && *pod.Spec.Affinity == (corev1.Affinity{}) {
		pod.Spec.Affinity = nil
	}
}

func (p *problems) fixedAnnotations(pod, old *corev1.Pod, path *field.Path) {
	keys := map[string]bool{mirrorPod: true}
	for _, m := range []map[string]string{pod.Annotations, old.Annotations} {
		for k := range m {
			if strings.HasPrefix(k, appArmorPrefix) {
				keys[k] = true
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		now, is := pod.Annotations[k]
		before, was := old.Annotations[k]
		what := "AppArmor annotations"
		if k == mirrorPod {
			what = "mirror pod annotation"
		}
		switch {
		case was && is && now == before || !was && !is:
		case was:
			p.forbidden(path.Key(k), "may not remove or update "+what)
		default:
			p.forbidden(path.Key(k), "may not add "+what)
		}
	}
}

func (p *problems) deadline(now, before *int64, path *field.Path) {
	switch {
	case now != nil:
		if *now < 0 || *now > math.MaxInt32 {
			p.invalid(path, *now, utilvalidation.InclusiveRangeError(0, math.MaxInt32))
		} else if before != nil && *before < *now {
			p.invalid(path, *now, "must be less than or equal to previous value")
		}
	case before != nil:
		p.invalid(path, now, "must not update from a positive integer to nil value")
	}
}

func (p *problems) tolerationsAdded(now, before []corev1.Toleration, path *field.Path) {
	for _, t := range before {
		found := slices.ContainsFunc(now, func(n corev1.Toleration) bool {
			// How long an eviction is put off may change.
			n.TolerationSeconds = t.TolerationSeconds
			return n == t
		})
		if !found {
			p.forbidden(path, "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
}

func (p *problems) gatesRemoved(now, before []corev1.PodSchedulingGate, path *field.Path) {
	for i, g := range now {
		if !slices.Contains(before, g) {
			p.forbidden(path.Index(i), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))
		}
	}
}

// narrowed checks that an update of a gated pod only narrows down the nodes it may run on.
func (p *problems) narrowed(pod, old *corev1.Pod, path *field.Path) {
	for k, v := range old.Spec.NodeSelector {
		if now, ok := pod.Spec.NodeSelector[k]; !ok || now != v {
			p.invalid(path.Child("nodeSelector"), pod.Spec.NodeSelector,
				"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
			break
		}
	}
	before, now := requiredNodes(old), requiredNodes(pod)
	if before == nil {
		return
	}
	at := path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	if now == nil {
		p.invalid(at, now, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	at = at.Child("nodeSelectorTerms")
	if len(before.NodeSelectorTerms) > 0 && len(before.NodeSelectorTerms) != len(now.NodeSelectorTerms) {
		p.invalid(at, now.NodeSelectorTerms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i, t := range before.NodeSelectorTerms {
		n := now.NodeSelectorTerms[i]
		empty := len(t.MatchExpressions)+len(t.MatchFields) == 0
		if empty && len(n.MatchExpressions)+len(n.MatchFields) > 0 ||
			!begins(n.MatchExpressions, t.MatchExpressions) || !begins(n.MatchFields, t.MatchFields) {
			p.invalid(at.Index(i), n, "only additions are allowed (no mutations or deletions)")
		}
	}
}

func begins(list, prefix []corev1.NodeSelectorRequirement) bool {
	return len(list) >= len(prefix) && equality.Semantic.DeepEqual(list[:len(prefix):len(prefix)], prefix)
}

func requiredNodes(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// ValidateEphemeralContainersUpdate returns what is wrong with an update through the ephemeralcontainers subresource:
// containers can be added, none changed or taken away.
func ValidateEphemeralContainersUpdate(pod, old *corev1.Pod) field.ErrorList {
	var p problems
	p.podOfItsOwn(pod)
	path := field.NewPath("spec", "ephemeralContainers")
	if _, static := old.Annotations[mirrorPod]; static {
		p.forbidden(field.NewPath(""), "static pods do not support ephemeral containers")
		return p.list
	}
	now := map[string]*corev1.EphemeralContainer{}
	for i := range pod.Spec.EphemeralContainers {
		now[pod.Spec.EphemeralContainers[i].Name] = &pod.Spec.EphemeralContainers[i]
	}
	for i := range old.Spec.EphemeralContainers {
		before := &old.Spec.EphemeralContainers[i]
		switch c := now[before.Name]; {
		case c == nil:
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", before.Name))
		case !equality.Semantic.DeepEqual(*c, *before):
			p.forbidden(path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%s", before.Name, diff.Diff(before, c)))
		}
	}
	return p.list
}

func validatePodStatusUpdate(obj, old api.Object) field.ErrorList {
	pod, before := obj.(*corev1.Pod), old.(*corev1.Pod)
	var p problems
	status := field.NewPath("status")
	p.fixedAnnotations(pod, before, field.NewPath("metadata").Child("annotations"))
	if n := pod.Status.NominatedNodeName; n != "" {
		p.messages(status.Child("nominatedNodeName"), n, utilvalidation.IsDNS1123Subdomain(n))
	}
	if pod.Spec.NodeName != before.Spec.NodeName {
		p.forbidden(status.Child("nodeName"), "may not be changed directly")
	}
	if q := pod.Status.QOSClass; before.Status.QOSClass != "" && q != before.Status.QOSClass {
		p.invalid(status.Child("qosClass"), q, "field is immutable")
	}
	p.transitions(pod.Status.ContainerStatuses, before.Status.ContainerStatuses, pod.Spec.RestartPolicy, nil, status.Child("containerStatuses"))
	p.transitions(pod.Status.InitContainerStatuses, before.Status.InitContainerStatuses, pod.Spec.RestartPolicy,
		pod.Spec.InitContainers, status.Child("initContainerStatuses"))
	// Ephemeral containers end once, whatever the pod's policy is.
	p.transitions(pod.Status.EphemeralContainerStatuses, before.Status.EphemeralContainerStatuses, corev1.RestartPolicyNever, nil,
		status.Child("ephemeralContainerStatuses"))
	p.podAddresses(pod, status)
	return p.list
}

// transitions checks that containers that have ended for good stay so.
func (p *problems) transitions(now, before []corev1.ContainerStatus, policy corev1.RestartPolicy, inits []corev1.Container, path *field.Path) {
	if policy == corev1.RestartPolicyAlways {
		return
	}
	for _, b := range before {
		t := b.State.Terminated
		if t == nil || t.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		if slices.ContainsFunc(inits, func(c corev1.Container) bool { return c.Name == b.Name && isSidecar(&c) }) {
			continue
		}
		for i, n := range now {
			if n.Name == b.Name && n.State.Terminated == nil {
				p.forbidden(path.Index(i).Child("state"), "may not be transitioned to non-terminated state")
				break
			}
		}
	}
}

func (p *problems) podAddresses(pod *corev1.Pod, path *field.Path) {
	var ips, hosts []string
	for _, a := range pod.Status.PodIPs {
		ips = append(ips, a.IP)
	}
	for _, a := range pod.Status.HostIPs {
		hosts = append(hosts, a.IP)
	}
	p.addressPair(ips, path.Child("podIPs"))
	if len(hosts) == 0 {
		return
	}
	if pod.Status.HostIP != hosts[0] {
		p.invalid(path.Child("hostIPs").Index(0).Child("ip"), hosts[0], "must be equal to `hostIP`")
	}
	p.addressPair(hosts, path.Child("hostIPs"))
}

// addressPair checks at most one address of each family.
func (p *problems) addressPair(ips []string, path *field.Path) {
	for i, ip := range ips {
		p.ip(path.Index(i), ip)
	}
	if len(ips) <= 1 {
		return
	}
	families := map[bool]int{}
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			families[a.Is4() || a.Is4In6()]++
		}
	}
	if len(ips) > 2 || families[true] != 1 || families[false] != 1 {
		p.invalid(path, ips, "may specify no more than one IP for each IP family")
	}
}
