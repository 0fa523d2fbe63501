package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/apiserver/authz"
	"proa/client"
)

// NodeRestriction narrows what the agent of a node may write: its own Node, Lease, CSINode and ResourceSlices, the status
// of the pods bound to it, and tokens for those pods.
type NodeRestriction struct {
	Pass
	pods  client.TypedLister[*corev1.Pod]
	nodes client.TypedLister[*corev1.Node]
}

// NewNodeRestriction returns the plugin.
func NewNodeRestriction(c client.Interface) *NodeRestriction {
	ctx := context.Background()
	return &NodeRestriction{pods: client.For[*corev1.Pod](c).Lister(ctx), nodes: client.For[*corev1.Node](c).Lister(ctx)}
}

// Name of the plugin.
func (*NodeRestriction) Name() string { return "NodeRestriction" }

// Admit checks requests of node agents.
func (p *NodeRestriction) Admit(_ context.Context, a *Attributes) error {
	node, ok := authz.NodeName(a.User)
	if !ok {
		return nil
	}
	switch a.Resource.Key() {
	case "pods":
		switch a.Subresource {
		case "":
			return p.pod(a, node)
		case "status":
			return p.podStatus(a, node)
		case "eviction":
			return p.eviction(a, node)
		}
		return forbid(a, fmt.Errorf("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", a.Subresource))
	case "nodes":
		return p.node(a, node)
	case "persistentvolumeclaims":
		return p.claim(a)
	case "serviceaccounts":
		if a.Subresource == "token" {
			return p.token(a, node)
		}
	case "leases.coordination.k8s.io":
		return p.own(a, node, "leases", corev1.NamespaceNodeLease)
	case "csinodes.storage.k8s.io":
		return p.own(a, node, "CSINode", "")
	case "resourceslices.resource.k8s.io":
		return p.slice(a, node)
	}
	return nil
}

func (p *NodeRestriction) pod(a *Attributes, node string) error {
	switch a.Operation {
	case Create:
		pod := a.Object.(*corev1.Pod)
		if !isMirror(pod) {
			return forbid(a, fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node))
		}
		if pod.Spec.NodeName != node {
			return forbid(a, fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node))
		}
		return p.mirrorOwner(a, pod, node)
	case Delete:
		pod, ok := p.pods.Get(a.Namespace, a.Name)
		if !ok {
			return apierrors.NewNotFound(a.Resource.GroupResource(), a.Name)
		}
		if pod.Spec.NodeName != node {
			return forbid(a, fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node))
		}
		return nil
	}
	return forbid(a, fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node))
}

// mirrorOwner wants a mirror pod to be owned by its node alone.
func (p *NodeRestriction) mirrorOwner(a *Attributes, pod *corev1.Pod, node string) error {
	if len(pod.OwnerReferences) != 1 {
		return forbid(a, fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node))
	}
	owner := pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node {
		return forbid(a, fmt.Errorf("node %q can only create pods with an owner reference set to itself", node))
	}
	if owner.Controller == nil || !*owner.Controller {
		return forbid(a, fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node))
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return forbid(a, fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node))
	}
	if present, ok := p.nodes.Get("", node); ok && present.UID != owner.UID {
		return forbid(a, fmt.Errorf("node %q UID mismatch: expected %q got %q", node, owner.UID, present.UID))
	}
	return nil
}

func (p *NodeRestriction) podStatus(a *Attributes, node string) error {
	if a.Operation != Update {
		return forbid(a, fmt.Errorf("unexpected operation %q", a.Operation))
	}
	pod, old := a.Object.(*corev1.Pod), a.OldObject.(*corev1.Pod)
	if old.Spec.NodeName != node {
		return forbid(a, fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node))
	}
	if !maps.Equal(pod.Labels, old.Labels) {
		return forbid(a, fmt.Errorf("node %q cannot update labels through pod status", node))
	}
	if !equality.Semantic.DeepEqual(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses) {
		return forbid(a, fmt.Errorf("node %q cannot update resource claim statuses", node))
	}
	return nil
}

func (p *NodeRestriction) eviction(a *Attributes, node string) error {
	name := a.Name
	if e, ok := a.Body.(*policyv1.Eviction); ok && name == "" {
		name = e.Name
	}
	if name == "" {
		return forbidText(a, "could not determine pod from request data")
	}
	pod, ok := p.pods.Get(a.Namespace, name)
	if !ok {
		return apierrors.NewNotFound(a.Resource.GroupResource(), name)
	}
	if pod.Spec.NodeName != node {
		return forbid(a, fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node))
	}
	return nil
}

// claim: only the size in the status may change, as the last step of growing a file system.
func (p *NodeRestriction) claim(a *Attributes) error {
	if a.Operation != Update || a.Subresource != "status" {
		return nil
	}
	claim := a.Object.(*corev1.PersistentVolumeClaim).DeepCopy()
	old := a.OldObject.(*corev1.PersistentVolumeClaim).DeepCopy()
	for _, c := range []*corev1.PersistentVolumeClaim{claim, old} {
		c.ManagedFields, c.ResourceVersion = nil, ""
		c.Status.Capacity, c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses, c.Status.Conditions = nil, nil, nil, nil
	}
	if !equality.Semantic.DeepEqual(claim, old) {
		return forbidText(a, "node is not allowed to update fields other than status.capacity and status.conditions")
	}
	return nil
}

func (p *NodeRestriction) node(a *Attributes, node string) error {
	name := a.Name
	if a.Operation == Create && a.Object != nil {
		name = a.Object.GetName()
	}
	if name != node {
		return forbid(a, fmt.Errorf("node %q is not allowed to modify node %q", node, name))
	}
	switch a.Operation {
	case Create:
		n := a.Object.(*corev1.Node)
		if n.Spec.ConfigSource != nil {
			return forbid(a, fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", node))
		}
		if forbidden := forbiddenLabels(n.Labels, nil); len(forbidden) > 0 {
			return forbid(a, fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(forbidden, ", ")))
		}
		if len(n.OwnerReferences) > 0 {
			return forbid(a, fmt.Errorf("node %q is not allowed to modify ownerReferences", node))
		}
	case Update:
		n, old := a.Object.(*corev1.Node), a.OldObject.(*corev1.Node)
		if n.Spec.ConfigSource != nil && !equality.Semantic.DeepEqual(n.Spec.ConfigSource, old.Spec.ConfigSource) {
			return forbid(a, fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", node))
		}
		if !equality.Semantic.DeepEqual(n.Spec.Taints, old.Spec.Taints) {
			return forbid(a, fmt.Errorf("node %q is not allowed to modify taints", node))
		}
		if forbidden := forbiddenLabels(n.Labels, old.Labels); len(forbidden) > 0 {
			return forbid(a, fmt.Errorf("is not allowed to modify labels: %s", strings.Join(forbidden, ", ")))
		}
		if !equality.Semantic.DeepEqual(n.OwnerReferences, old.OwnerReferences) {
			return forbid(a, fmt.Errorf("node %q is not allowed to modify ownerReferences", node))
		}
	}
	return nil
}

// ownLabel reports whether a label of the reserved domains is one that an agent may set on its node.
func ownLabel(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, corev1.LabelInstanceTypeStable,
		corev1.LabelOSStable, corev1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
		corev1.LabelWindowsBuild:
		return true
	}
	return false
}

// forbiddenLabels are the changed labels that no agent may set: those of kubernetes.io and k8s.io that are not its own.
func forbiddenLabels(labels, old map[string]string) []string {
	var out []string
	check := func(key string) {
		if forbiddenLabel(key) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for key, value := range labels {
		if before, ok := old[key]; !ok || before != value {
			check(key)
		}
	}
	for key := range old {
		if _, ok := labels[key]; !ok {
			check(key)
		}
	}
	slices.Sort(out)
	return out
}

func forbiddenLabel(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	switch {
	case !ok, !within("kubernetes.io") && !within("k8s.io"):
		return false
	case within("node-restriction.kubernetes.io"):
		return true
	}
	return !ownLabel(key) && !within("kubelet.kubernetes.io") && !within("node.kubernetes.io")
}

// token: an agent gets tokens only for pods that run on its node.
func (p *NodeRestriction) token(a *Attributes, node string) error {
	body, ok := a.Body.(*authenticationv1.TokenRequest)
	if !ok {
		return forbidText(a, "unexpected type")
	}
	ref := body.Spec.BoundObjectRef
	switch {
	case ref == nil, ref.APIVersion != "v1", ref.Kind != "Pod", ref.Name == "":
		return forbidText(a, "node requested token not bound to a pod")
	case ref.UID == "":
		return forbidText(a, "node requested token with a pod binding without a uid")
	}
	pod, ok := p.pods.Get(a.Namespace, ref.Name)
	switch {
	case !ok:
		return apierrors.NewNotFound(a.Resource.GroupResource(), ref.Name)
	case ref.UID != pod.UID:
		return forbid(a, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	case pod.Spec.NodeName != node:
		return forbidText(a, "node requested token bound to a pod scheduled on a different node")
	}
	return nil
}

// own wants an object to have the node's name.
func (p *NodeRestriction) own(a *Attributes, node, what, namespace string) error {
	if namespace != "" && a.Namespace != namespace {
		return forbid(a, fmt.Errorf("can only access leases in the %q system namespace", namespace))
	}
	name := a.Name
	if a.Operation == Create && a.Object != nil {
		name = a.Object.GetName()
	}
	if name != node {
		if what == "leases" {
			return forbidText(a, "can only access node lease with the same name as the requesting node")
		}
		return forbid(a, fmt.Errorf("can only access %s with the same name as the requesting node", what))
	}
	return nil
}

func (p *NodeRestriction) slice(a *Attributes, node string) error {
	var obj metav1.Object = a.Object
	if a.Operation == Delete {
		obj = a.OldObject
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return forbid(a, fmt.Errorf("unexpected type %T", obj))
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		return forbid(a, errors.New("can only "+strings.ToLower(string(a.Operation))+" ResourceSlice with the same NodeName as the requesting node"))
	}
	return nil
}
