package core

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func nodes() *api.Resource {
	status, info := corev1.NodeStatus{}.SwaggerDoc(), corev1.NodeSystemInfo{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind:     kind("Node"),
		Plural:               "nodes",
		Singular:             "node",
		ShortNames:           []string{"no"},
		New:                  func() api.Object { return new(corev1.Node) },
		NewList:              func() runtime.Object { return new(corev1.NodeList) },
		Subresources:         []api.Subresource{proxied("NodeProxyOptions"), api.Status()},
		KeepsStatusOnCreate:  true,
		Default:              defaultNode,
		PrepareCreate:        func(obj api.Object) { obj.(*corev1.Node).Spec.ConfigSource = nil },
		PrepareUpdate:        prepareNodeUpdate,
		Validate:             validateNode,
		ValidateUpdate:       validateNodeUpdate,
		ValidateStatusUpdate: validateNodeStatus,
		Warnings:             nodeWarnings,
		FieldNames:           []string{"spec.unschedulable"},
		FieldValue: func(obj api.Object, _ string) string {
			return strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Status", "The status of the node"),
			api.Text("Roles", "The roles of the node"),
			api.AgeColumn(),
			api.Text("Version", info["kubeletVersion"]),
			api.Wide("Internal-IP", status["addresses"]),
			api.Wide("External-IP", status["addresses"]),
			api.Wide("OS-Image", info["osImage"]),
			api.Wide("Kernel-Version", info["kernelVersion"]),
			api.Wide("Container-Runtime", info["containerRuntimeVersion"]),
		},
		Cells: nodeCells,
	}
}

func defaultNode(obj api.Object) {
	node := obj.(*corev1.Node)
	if node.Status.Allocatable == nil && node.Status.Capacity != nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	roundUp(node.Status.Capacity)
	roundUp(node.Status.Allocatable)
	switch {
	case node.Spec.PodCIDR != "" && len(node.Spec.PodCIDRs) == 0:
		node.Spec.PodCIDRs = []string{node.Spec.PodCIDR}
	case node.Spec.PodCIDR == "" && len(node.Spec.PodCIDRs) > 0:
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
}

func prepareNodeUpdate(obj, old api.Object) {
	node, before := obj.(*corev1.Node), old.(*corev1.Node)
	node.Status = before.Status
	node.Spec.ConfigSource = before.Spec.ConfigSource
}

func validateNode(obj api.Object) field.ErrorList {
	node := obj.(*corev1.Node)
	var p problems
	spec := field.NewPath("spec")
	p.taints(node.Spec.Taints, spec.Child("taints"))
	p.nodeResources(node)
	cidrs := spec.Child("podCIDRs")
	families := map[bool]int{}
	for i, c := range node.Spec.PodCIDRs {
		p.all(utilvalidation.IsValidCIDRForLegacyField(cidrs.Index(i), c, false, nil))
		if prefix, err := netip.ParsePrefix(c); err == nil {
			families[prefix.Addr().Is4()]++
		}
	}
	if n := len(node.Spec.PodCIDRs); n > 2 || n == 2 && (families[true] != 1 || families[false] != 1) {
		p.invalid(cidrs, node.Spec.PodCIDRs, "may specify no more than one CIDR for each IP family")
	}
	return p.list
}

func (p *problems) taints(taints []corev1.Taint, path *field.Path) {
	type id struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[id]bool{}
	for i, t := range taints {
		at := path.Index(i)
		p.all(metavalidation.ValidateLabelName(t.Key, at.Child("key")))
		if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			p.invalid(at.Child("value"), t.Value, strings.Join(msgs, ";"))
		}
		p.taintEffect(at.Child("effect"), t.Effect, false)
		if n := (id{t.Key, t.Effect}); seen[n] {
			p.list = append(p.list, withDetail(field.Duplicate(at, t), "taints must be unique by key and effect pair"))
		} else {
			seen[n] = true
		}
	}
}

func withDetail(e *field.Error, detail string) *field.Error {
	e.Detail = detail
	return e
}

func (p *problems) nodeResources(node *corev1.Node) {
	status := field.NewPath("status")
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", node.Status.Capacity}, {"allocatable", node.Status.Allocatable}} {
		for _, name := range sortedNames(part.list) {
			at := status.Child(part.name).Key(string(name))
			p.messages(at, string(name), utilvalidation.IsQualifiedName(string(name)))
			q := part.list[name]
			if q.Sign() < 0 {
				p.invalid(at, q.String(), notNegative)
			}
			if integerResource(name) && q.MilliValue()%1000 != 0 {
				p.invalid(at, q.String(), notInteger)
			}
		}
	}
}

func validateNodeUpdate(obj, old api.Object) field.ErrorList {
	node, before := obj.(*corev1.Node), old.(*corev1.Node)
	var p problems
	spec := field.NewPath("spec")
	p.all(validateNode(node))
	switch was, now := before.Spec.PodCIDRs, node.Spec.PodCIDRs; {
	case len(was) == 0:
	case len(was) != len(now):
		p.forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid")
	case !slices.Equal(was, now):
		p.forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid")
	}
	if before.Spec.ProviderID != "" && before.Spec.ProviderID != node.Spec.ProviderID {
		p.forbidden(spec.Child("providerID"), "node updates may not change providerID except from \"\" to valid")
	}
	if !equality.Semantic.DeepEqual(before.Spec.ConfigSource, node.Spec.ConfigSource) && node.Spec.ConfigSource != nil {
		p.forbidden(spec.Child("configSource"), "configSource may not be set")
	}
	return p.list
}

func validateNodeStatus(obj, old api.Object) field.ErrorList {
	node := obj.(*corev1.Node)
	var p problems
	p.nodeResources(node)
	seen := map[corev1.NodeAddress]bool{}
	for i, a := range node.Status.Addresses {
		if seen[a] {
			p.duplicate(field.NewPath("status", "addresses").Index(i), a)
		}
		seen[a] = true
	}
	for i, image := range node.Status.Images {
		if len(image.Names) > 0 {
			continue
		}
		p.required(field.NewPath("status", "images").Index(i).Child("names"), "")
	}
	return p.list
}

func nodeWarnings(obj, _ api.Object) []string {
	node := obj.(*corev1.Node)
	var w warnings
	if node.Spec.ConfigSource != nil {
		w.add(field.NewPath("spec", "configSource"), "deprecated in v1.22, support removal is planned in v1.23")
	}
	if node.Spec.DoNotUseExternalID != "" {
		w.add(field.NewPath("spec", "externalID"), "this field is deprecated, and is unused by Kubernetes")
	}
	return w.list
}

func nodeCells(obj api.Object, now time.Time) []any {
	node := obj.(*corev1.Node)
	info := &node.Status.NodeInfo
	unknown := func(s string) string {
		if s == "" {
			return "<unknown>"
		}
		return s
	}
	return []any{node.Name, nodeStatus(node), orNone(strings.Join(nodeRoles(node), ",")), api.Age(node.CreationTimestamp, now),
		info.KubeletVersion, nodeAddress(node, corev1.NodeInternalIP), nodeAddress(node, corev1.NodeExternalIP),
		unknown(info.OSImage), unknown(info.KernelVersion), unknown(info.ContainerRuntimeVersion)}
}

func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if status = "NotReady"; c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(node *corev1.Node) []string {
	var roles []string
	for k, v := range node.Labels {
		if role, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if k == "kubernetes.io/role" && v != "" {
			roles = append(roles, v)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

func nodeAddress(node *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return none
}
