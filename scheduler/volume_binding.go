package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"proa/client"
)

const volumeBindingName = "VolumeBinding"

// Annotations between scheduler, provisioners and the binder of volumes.
const (
	selectedNode      = "volume.kubernetes.io/selected-node"
	boundByController = "pv.kubernetes.io/bound-by-controller"
)

// noProvisioner is the provisioner of classes whose volumes people make.
const noProvisioner = "kubernetes.io/no-provisioner"

// bindTimeout is how long a decided pod waits for its claims to be bound.
const bindTimeout = 600 * time.Second

// volumeBinding holds pods to the nodes that their volumes can be reached from, and has claims that wait for their first
// consumer bound or provisioned for the node that was chosen.
type volumeBinding struct{}

func (volumeBinding) name() string { return volumeBindingName }

type volumeFilter struct {
	state *state
	bound []*corev1.PersistentVolume
	// open are the claims that are bound once a node is chosen.
	open               []*corev1.PersistentVolumeClaim
	conflict, noVolume *status
}

// claimNames of a pod, those of its ephemeral volumes among them.
func claimNames(pod *corev1.Pod) (names []string, ephemeral sets.Set[string]) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			name := pod.Name + "-" + v.Name
			names = append(names, name)
			ephemeral = ephemeral.Insert(name)
		}
	}
	return names, ephemeral
}

func (volumeBinding) preFilter(c *cycle) (filter, *status) {
	no := func(format string, args ...any) (filter, *status) {
		return nil, reject(volumeBindingName, unresolvable, fmt.Sprintf(format, args...))
	}
	pod := c.pod.pod
	names, ephemeral := claimNames(pod)
	if len(names) == 0 {
		return nil, nil
	}
	f := &volumeFilter{
		state:    c.state,
		conflict: reject(volumeBindingName, unresolvable, "node(s) had volume node affinity conflict"),
		noVolume: reject(volumeBindingName, unresolvable, "node(s) didn't find available persistent volumes to bind"),
	}
	immediate := false
	for _, name := range names {
		claim := c.claims[objectKey{pod.Namespace, name}]
		switch {
		case claim == nil && ephemeral.Has(name):
			return no("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name)
		case claim == nil:
			return no("persistentvolumeclaim %q not found", name)
		case claim.Status.Phase == corev1.ClaimLost:
			return no("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName)
		case claim.DeletionTimestamp != nil:
			return no("persistentvolumeclaim %q is being deleted", name)
		case ephemeral.Has(name) && !metav1.IsControlledBy(claim, pod):
			return no("PVC %s was not created for pod %s (pod is not owner)", claim.Namespace+"/"+claim.Name, pod.Namespace+"/"+pod.Name)
		}
		if claim.Spec.VolumeName != "" {
			volume := c.volumes[claim.Spec.VolumeName]
			if volume == nil {
				return no("persistentvolume %q not found", claim.Spec.VolumeName)
			}
			f.bound = append(f.bound, volume)
			continue
		}
		if class := c.classOf(claim); class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
			f.open = append(f.open, claim)
		} else {
			immediate = true
		}
	}
	if immediate {
		return no("pod has unbound immediate PersistentVolumeClaims")
	}
	return f, nil
}

func (f *volumeFilter) filter(n *nodeInfo) *status {
	for _, v := range f.bound {
		if !reachable(v, n.node) {
			return f.conflict
		}
	}
	if _, ok := f.match(n.node); !ok {
		return f.noVolume
	}
	return nil
}

// reachable reports whether a volume can be used on a node.
func reachable(v *corev1.PersistentVolume, node *corev1.Node) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	ok, err := nodeaffinity.NewLazyErrorNodeSelector(v.Spec.NodeAffinity.Required).Match(node)
	return ok && err == nil
}

// match finds the volumes for the open claims on a node, smallest first; claims without one are left to their class's
// provisioner. It is not ok when that cannot be.
func (f *volumeFilter) match(node *corev1.Node) (map[*corev1.PersistentVolumeClaim]*corev1.PersistentVolume, bool) {
	var matched map[*corev1.PersistentVolumeClaim]*corev1.PersistentVolume
	taken := sets.Set[string]{}
	for _, claim := range f.open {
		if chosen := claim.Annotations[selectedNode]; chosen != "" && chosen != node.Name {
			return nil, false // being provisioned for another node
		}
		var best *corev1.PersistentVolume
		for _, v := range f.state.volumes {
			if taken.Has(v.Name) || !f.state.suits(v, claim) || !reachable(v, node) {
				continue
			}
			if best == nil || cmp.Or(v.Spec.Capacity.Storage().Cmp(*best.Spec.Capacity.Storage()), cmp.Compare(v.Name, best.Name)) < 0 {
				best = v
			}
		}
		if best != nil {
			taken.Insert(best.Name)
			if matched == nil {
				matched = map[*corev1.PersistentVolumeClaim]*corev1.PersistentVolume{}
			}
			matched[claim] = best
			continue
		}
		if class := f.state.classOf(claim); class.Provisioner == noProvisioner || !allowedOn(class, node) {
			return nil, false
		}
	}
	return matched, true
}

// suits reports whether a claim may be bound to a volume.
func (o *others) suits(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	if ref := v.Spec.ClaimRef; ref != nil {
		return ref.Namespace == claim.Namespace && ref.Name == claim.Name && (ref.UID == "" || ref.UID == claim.UID)
	}
	if v.Status.Phase != corev1.VolumeAvailable || v.DeletionTimestamp != nil || o.promised[v.Name] {
		return false
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	mode := func(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
		if m == nil {
			return corev1.PersistentVolumeFilesystem
		}
		return *m
	}
	want := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		selector = selectorOf(claim.Spec.Selector)
	}
	return v.Spec.StorageClassName == class && mode(v.Spec.VolumeMode) == mode(claim.Spec.VolumeMode) &&
		v.Spec.Capacity.Storage().Cmp(want) >= 0 && selector.Matches(labels.Set(v.Labels)) &&
		!slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) })
}

// allowedOn reports whether a class provisions volumes for a node.
func allowedOn(class *storagev1.StorageClass, node *corev1.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	return slices.ContainsFunc(class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if value, ok := node.Labels[e.Key]; !ok || !slices.Contains(e.Values, value) {
				return false
			}
		}
		return true
	})
}

// volumePlan is what has to be written before a pod can be bound.
type volumePlan struct {
	node    string
	open    []*corev1.PersistentVolumeClaim
	volumes map[*corev1.PersistentVolumeClaim]*corev1.PersistentVolume
}

// planVolumes reserves the volumes that the open claims get on a node. The caller holds mu.
func (c *cycle) planVolumes(n *nodeInfo) *volumePlan {
	for _, f := range c.filters {
		if f, ok := f.(*volumeFilter); ok && len(f.open) > 0 {
			matched, _ := f.match(n.node)
			for _, v := range matched {
				c.promised[v.Name] = true
			}
			return &volumePlan{n.name, f.open, matched}
		}
	}
	return nil
}

// bindVolumes has the claims bound, and waits until they are.
func (s *Scheduler) bindVolumes(ctx context.Context, plan *volumePlan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bindTimeout, errors.New("timed out waiting for the condition"))
	defer cancel()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, v := range plan.volumes {
			delete(s.state.promised, v.Name)
		}
	}()
	volumes, claims := client.For[*corev1.PersistentVolume](s.config.Client), client.For[*corev1.PersistentVolumeClaim](s.config.Client)
	for _, claim := range plan.open {
		if v := plan.volumes[claim]; v != nil {
			if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == claim.UID {
				continue
			}
			next := v.DeepCopy()
			if next.Spec.ClaimRef == nil {
				metav1.SetMetaDataAnnotation(&next.ObjectMeta, boundByController, "yes")
			}
			next.Spec.ClaimRef = &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			}
			if _, err := volumes.Update(ctx, next); err != nil {
				return fmt.Errorf("bind volume %s: %w", v.Name, err)
			}
			continue
		}
		if claim.Annotations[selectedNode] == plan.node {
			continue
		}
		next := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, selectedNode, plan.node)
		if _, err := claims.Update(ctx, next); err != nil {
			return fmt.Errorf("select node for claim %s: %w", claim.Name, err)
		}
	}
	for {
		s.mu.Lock()
		changed := s.state.volumesChanged
		bound, err := s.state.allBound(plan)
		s.mu.Unlock()
		if bound || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("binding volumes: %w", context.Cause(ctx))
		}
	}
}

// allBound reports whether the claims of a plan are bound; an error means that they will not be on that node.
func (o *others) allBound(plan *volumePlan) (bool, error) {
	for _, claim := range plan.open {
		now := o.claims[objectKey{claim.Namespace, claim.Name}]
		switch {
		case now == nil || now.UID != claim.UID:
			return false, fmt.Errorf("claim %s was deleted", claim.Name)
		case now.Status.Phase == corev1.ClaimBound && now.Spec.VolumeName != "":
		case plan.volumes[claim] == nil && now.ResourceVersion != claim.ResourceVersion && now.Annotations[selectedNode] == "":
			return false, fmt.Errorf("provisioning for claim %s failed on node %s", claim.Name, plan.node)
		default:
			return false, nil
		}
	}
	return true, nil
}

func (volumeBinding) hint(e client.Event, pod *corev1.Pod) bool {
	switch obj := e.Object().(type) {
	case *corev1.PersistentVolumeClaim:
		names, _ := claimNames(pod)
		return obj.Namespace == pod.Namespace && slices.Contains(names, obj.Name)
	case *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSINode:
		return e.New != nil
	}
	_, node := nodeEvent(e)
	return node != nil
}
