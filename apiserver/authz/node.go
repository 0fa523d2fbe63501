package authz

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"

	"proa/apiserver/request"
	"proa/client"
)

// Node lets the agents of nodes read and write what relates to their node: the objects that the pods on it use, their own
// lease and CSINode, and what the role system:node lists for all nodes. What a node may change in its own Node and pods is
// narrowed further by the admission plugin NodeRestriction. It is safe for concurrent use.
type Node struct {
	client      client.Interface
	rules       []rbacv1.PolicyRule
	pods        client.TypedLister[*corev1.Pod]
	claims      client.TypedLister[*corev1.PersistentVolumeClaim]
	volumes     client.TypedLister[*corev1.PersistentVolume]
	attachments client.TypedLister[*storagev1.VolumeAttachment]

	byNode  *client.Index[*corev1.Pod]
	indexed atomic.Bool
}

// NewNode returns the authorizer.
func NewNode(c client.Interface) *Node {
	ctx := context.Background()
	return &Node{
		client:      c,
		rules:       nodeRules(),
		pods:        client.For[*corev1.Pod](c).Lister(ctx),
		claims:      client.For[*corev1.PersistentVolumeClaim](c).Lister(ctx),
		volumes:     client.For[*corev1.PersistentVolume](c).Lister(ctx),
		attachments: client.For[*storagev1.VolumeAttachment](c).Lister(ctx),
		byNode: client.NewIndex(func(p *corev1.Pod) []string {
			if node := opensTo(p); node != "" {
				return []string{node}
			}
			return nil
		}),
	}
}

// Run keeps the index of pods by node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	defer n.indexed.Store(false)
	return n.client.Subscribe(ctx, func(e client.Event) {
		if e.Synced() {
			n.indexed.Store(true)
			return
		}
		n.byNode.Apply(e)
	}, client.For[*corev1.Pod](n.client).Scope())
}

// NodeName returns the node whose agent the user is.
func NodeName(u *request.User) (string, bool) {
	if u == nil {
		return "", false
	}
	name, ok := strings.CutPrefix(u.Name, request.NodeUserPrefix)
	return name, ok && name != "" && u.In(request.Nodes)
}

// Authorize decides about requests of node agents.
func (n *Node) Authorize(_ context.Context, user *request.User, info *request.Info) (Decision, string, error) {
	node, ok := NodeName(user)
	if !ok {
		return NoOpinion, "", nil
	}
	if !info.IsResource {
		return n.byRules(info)
	}
	switch info.Group + "/" + info.Resource {
	case "/secrets":
		return n.read(node, info, n.usesSecret)
	case "/configmaps":
		return n.read(node, info, n.usesConfigMap)
	case "/persistentvolumeclaims":
		if info.Subresource == "status" {
			return n.related(node, info, []string{"get", "update", "patch"}, n.usesClaim)
		}
		return n.related(node, info, []string{"get"}, n.usesClaim)
	case "/persistentvolumes":
		return n.related(node, info, []string{"get"}, n.usesVolume)
	case "storage.k8s.io/volumeattachments":
		return n.related(node, info, []string{"get"}, n.isAttachment)
	case "/serviceaccounts":
		if info.Subresource != "token" || info.Verb != "create" {
			return NoOpinion, "can only create tokens for individual service accounts", nil
		}
		return n.related(node, info, []string{"create"}, n.usesAccount)
	case "resource.k8s.io/resourceclaims":
		return n.related(node, info, []string{"get"}, n.usesResourceClaim)
	case "coordination.k8s.io/leases":
		return n.lease(node, info)
	case "storage.k8s.io/csinodes":
		return n.csiNode(node, info)
	}
	return n.byRules(info)
}

func (n *Node) byRules(info *request.Info) (Decision, string, error) {
	if covers(n.rules, info) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// read allows get, and list and watch of one object by name.
func (n *Node) read(node string, info *request.Info, uses usage) (Decision, string, error) {
	if info.Verb != "get" && info.Verb != "list" && info.Verb != "watch" {
		return NoOpinion, "can only read resources of this type", nil
	}
	return n.related(node, info, []string{"get", "list", "watch"}, uses)
}

// usage reports whether a pod's node needs the object.
type usage func(node, namespace, name string) bool

func (n *Node) related(node string, info *request.Info, verbs []string, uses usage) (Decision, string, error) {
	if !has(verbs, info.Verb) {
		return NoOpinion, "can only " + strings.Join(verbs, "/") + " resources of this type", nil
	}
	if info.Subresource != "" && info.Subresource != "status" && info.Subresource != "token" {
		return NoOpinion, "cannot read subresource", nil
	}
	name := info.Name
	if name == "" && info.FieldSelector != "" {
		if s, err := fields.ParseSelector(info.FieldSelector); err == nil {
			name, _ = s.RequiresExactMatch("metadata.name")
		}
	}
	if name == "" {
		return NoOpinion, "No Object name found", nil
	}
	if !uses(node, info.Namespace, name) {
		return NoOpinion, fmt.Sprintf("no relationship found between node '%s' and this object", node), nil
	}
	return Allow, "", nil
}

func (n *Node) lease(node string, info *request.Info) (Decision, string, error) {
	if !has([]string{"get", "create", "update", "patch", "delete"}, info.Verb) {
		return NoOpinion, "can only get, create, update, patch, or delete a node lease", nil
	}
	if info.Namespace != corev1.NamespaceNodeLease {
		return NoOpinion, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease), nil
	}
	// A create does not name the lease in its URL; NodeRestriction looks at the object.
	if info.Verb != "create" && info.Name != node {
		return NoOpinion, "can only access node lease with the same name as the requesting node", nil
	}
	return Allow, "", nil
}

func (n *Node) csiNode(node string, info *request.Info) (Decision, string, error) {
	if !has([]string{"get", "create", "update", "patch", "delete"}, info.Verb) {
		return NoOpinion, "can only get, create, update, patch, or delete a CSINode", nil
	}
	if info.Subresource != "" {
		return NoOpinion, "cannot authorize CSINode subresources", nil
	}
	if info.Verb != "create" && info.Name != node {
		return NoOpinion, "can only access CSINode with the same name as the requesting node", nil
	}
	return Allow, "", nil
}

// opensTo names the node that may read what a pod uses, "" for none. A mirror pod is written by its node, which must not be
// able to open objects to itself.
func opensTo(p *corev1.Pod) string {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return ""
	}
	return p.Spec.NodeName
}

// podsOn yields the pods whose objects a node may read.
func (n *Node) podsOn(node string) iter.Seq[*corev1.Pod] {
	if n.indexed.Load() {
		return n.byNode.Lookup(node)
	}
	return func(yield func(*corev1.Pod) bool) {
		for pod := range n.pods.All("") {
			if opensTo(pod) == node && !yield(pod) {
				return
			}
		}
	}
}
