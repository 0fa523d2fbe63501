package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/client"
)

// Heartbeats: the lease says that the node lives, the status is written when it changes and seldom otherwise.
const (
	leasePeriod   = 10 * time.Second
	leaseDuration = 40
	statusPeriod  = 5 * time.Minute
	maxImages     = 50
	leasesIn      = "kube-node-lease"

	// notReadyPeriod is how often a node that is not ready is looked at.
	notReadyPeriod = 100 * time.Millisecond
)

// heartbeat registers the node and keeps its lease and status.
func (n *Node) heartbeat(ctx context.Context) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 7*time.Second) {
		err := n.register(ctx)
		if err == nil {
			break
		}
		n.Log.Warn("node not registered", "node", n.Name, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	n.event(n.self(), "", corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	written := time.Now()
	n.renew(ctx)
	ticker := time.NewTicker(leasePeriod)
	defer ticker.Stop()
	for {
		// What a new node still lacks, such as its pod network, comes within moments: it is looked for, not waited for.
		var soon <-chan time.Time
		if self := n.self(); self != nil && !ready(self) && time.Since(written) < statusPeriod {
			soon = time.After(notReadyPeriod)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-soon:
		case <-n.statusWake:
			n.imagesStale = true
		case <-ticker.C:
			n.renew(ctx)
		}
		force := time.Since(written) >= statusPeriod
		n.imagesStale = n.imagesStale || force
		changed, err := n.updateStatus(ctx, force)
		if err != nil {
			n.Log.Warn("node status not written", "node", n.Name, "err", err)
		}
		if changed {
			written = time.Now()
		}
	}
}

// ready reports the node's Ready condition.
func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// wakeStatus has the node's status looked at soon.
func (n *Node) wakeStatus() {
	select {
	case n.statusWake <- struct{}{}:
	default:
	}
}

func (n *Node) self() *corev1.Node {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.node
}

// nodeEvent takes in a change of the node's own object.
func (n *Node) nodeEvent(e client.Event) {
	object, ok := e.New.(*corev1.Node)
	if !ok || object.Name != n.Name {
		return
	}
	n.mu.Lock()
	old := n.node
	n.node = object
	n.mu.Unlock()
	if n.PodCIDRs != nil && len(object.Spec.PodCIDRs) > 0 && (old == nil || !n.toldCIDRs) {
		n.tellCIDRs(object)
	}
}

func (n *Node) tellCIDRs(object *corev1.Node) {
	var prefixes []netip.Prefix
	for _, text := range object.Spec.PodCIDRs {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			n.Log.Warn("pod range of node not understood", "node", n.Name, "range", text)
			return
		}
		prefixes = append(prefixes, prefix)
	}
	n.toldCIDRs = true
	n.PodCIDRs(prefixes)
	n.wakeStatus()
}

func (n *Node) setNode(node *corev1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node = node
}

func (n *Node) labels() map[string]string {
	out := map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(out, n.Labels)
	return out
}

// register creates the node or brings the one there up to date.
func (n *Node) register(ctx context.Context) error {
	nodes := client.For[*corev1.Node](n.Client)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.labels(), Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
	maps.Copy(node.Annotations, n.Annotations)
	node.Spec.Taints, node.Spec.ProviderID = n.Taints, n.ProviderID
	for i, own := range n.OwnPodCIDRs {
		if i == 0 {
			node.Spec.PodCIDR = own.String()
		}
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, own.String())
	}
	n.fillStatus(ctx, &node.Status, nil)
	created, err := nodes.Create(ctx, node)
	if err == nil {
		n.setNode(created)
		// Only what the API did not take with the object is left to write.
		_, err = n.updateStatus(ctx, false)
		return err
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node: %w", err)
	}
	old, err := nodes.Get(ctx, "", n.Name)
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": node.Labels, "annotations": node.Annotations}})
	if err != nil {
		return err
	}
	if old, err = nodes.Patch(ctx, "", n.Name, "", types.StrategicMergePatchType, patch); err != nil {
		return fmt.Errorf("label node: %w", err)
	}
	n.setNode(old)
	_, err = n.updateStatus(ctx, true)
	return err
}

// updateStatus writes the node's status when it has changed, or anyway when forced.
func (n *Node) updateStatus(ctx context.Context, force bool) (bool, error) {
	nodes := client.For[*corev1.Node](n.Client)
	old := n.self()
	if old == nil {
		return false, nil
	}
	status := old.Status.DeepCopy()
	n.fillStatus(ctx, status, &old.Status)
	if !force && equality.Semantic.DeepEqual(&old.Status, status) {
		return false, nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for i := range status.Conditions {
		if ours(status.Conditions[i].Type) {
			status.Conditions[i].LastHeartbeatTime = now
		}
	}
	before, err := json.Marshal(corev1.Node{Status: old.Status})
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(corev1.Node{Status: *status})
	if err != nil {
		return false, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return false, err
	}
	written, err := nodes.Patch(ctx, "", n.Name, "status", types.StrategicMergePatchType, patch)
	if apierrors.IsNotFound(err) {
		// Somebody deleted the node; this one still runs.
		return true, n.register(ctx)
	}
	if err != nil {
		return false, err
	}
	n.setNode(written)
	return true, nil
}

func ours(kind corev1.NodeConditionType) bool {
	return kind == corev1.NodeReady || kind == corev1.NodeMemoryPressure || kind == corev1.NodeDiskPressure || kind == corev1.NodePIDPressure
}

// fillStatus sets what this agent says about the node.
func (n *Node) fillStatus(ctx context.Context, status, old *corev1.NodeStatus) {
	var addresses []corev1.NodeAddress
	for _, a := range n.Addresses {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	status.Addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
	if status.Capacity == nil {
		status.Capacity, status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	}
	maps.Copy(status.Capacity, n.capacity()) // extended resources that others set stay
	maps.Copy(status.Allocatable, n.allocatable())
	for name, q := range status.Capacity {
		if _, ok := status.Allocatable[name]; !ok {
			status.Allocatable[name] = q
		}
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = n.ServerPort
	n.fillInfo(ctx, &status.NodeInfo)
	if n.RootDir != "" && (n.imagesStale || len(status.Images) == 0) {
		n.imagesStale = false
		n.fillImages(ctx, status)
	}
	n.fillHandlers(ctx, status)
	n.fillConditions(ctx, status)
}

// handlerLister is a runtime that tells which handlers a RuntimeClass may name.
type handlerLister interface {
	RuntimeHandlers(ctx context.Context) ([]*cri.RuntimeHandler, error)
}

// fillHandlers lists the runtime's handlers, once: they are part of its configuration.
func (n *Node) fillHandlers(ctx context.Context, status *corev1.NodeStatus) {
	lister, ok := n.Runtime.(handlerLister)
	if !ok || n.handlersRead {
		return
	}
	list, err := lister.RuntimeHandlers(ctx)
	if err != nil {
		return
	}
	n.handlersRead = true
	status.RuntimeHandlers = nil
	for _, h := range list {
		recursive, userns := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		status.RuntimeHandlers = append(status.RuntimeHandlers, corev1.NodeRuntimeHandler{
			Name: h.Name, Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &userns},
		})
	}
}

func (n *Node) fillInfo(ctx context.Context, info *corev1.NodeSystemInfo) {
	if info.KubeletVersion != "" && info.ContainerRuntimeVersion != "" && n.infoRead {
		return // none of it changes while the agent runs
	}
	*info = n.hostInfo()
	info.OperatingSystem, info.Architecture = runtime.GOOS, runtime.GOARCH
	info.KubeletVersion, info.KubeProxyVersion = Version, Version
	if version, err := n.Runtime.Version(ctx); err == nil {
		info.ContainerRuntimeVersion = version.RuntimeName + "://" + version.RuntimeVersion
		n.infoRead = true
	}
}

// fillImages lists the biggest images, as schedulers weigh them.
func (n *Node) fillImages(ctx context.Context, status *corev1.NodeStatus) {
	list, err := n.Runtime.ListImages(ctx)
	if err != nil {
		return
	}
	slices.SortFunc(list, func(a, b *cri.Image) int { return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(a.Id, b.Id)) })
	status.Images = nil
	for _, image := range list[:min(len(list), maxImages)] {
		names := append(slices.Clone(image.RepoDigests), image.RepoTags...)
		if len(names) > 5 {
			names = names[:5]
		}
		status.Images = append(status.Images, corev1.ContainerImage{Names: names, SizeBytes: int64(image.Size)})
	}
}

func (n *Node) fillConditions(ctx context.Context, status *corev1.NodeStatus) {
	good := func(kind corev1.NodeConditionType, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if problems := n.problems(ctx); problems != "" {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", problems
	}
	memory := good(corev1.NodeMemoryPressure, "KubeletHasSufficientMemory", "kubelet has sufficient memory available")
	disk := good(corev1.NodeDiskPressure, "KubeletHasNoDiskPressure", "kubelet has no disk pressure")
	pids := good(corev1.NodePIDPressure, "KubeletHasSufficientPID", "kubelet has sufficient PID available")
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, c := range []corev1.NodeCondition{memory, disk, pids, ready} {
		i := slices.IndexFunc(status.Conditions, func(old corev1.NodeCondition) bool { return old.Type == c.Type })
		if i < 0 {
			c.LastHeartbeatTime, c.LastTransitionTime = now, now
			status.Conditions = append(status.Conditions, c)
			continue
		}
		old := status.Conditions[i]
		c.LastHeartbeatTime, c.LastTransitionTime = old.LastHeartbeatTime, old.LastTransitionTime
		if old.Status != c.Status {
			c.LastTransitionTime = now
			if self := n.self(); self != nil && c.Type == corev1.NodeReady {
				reason := "NodeNotReady"
				if c.Status == corev1.ConditionTrue {
					reason = "NodeReady"
				}
				n.event(self, "", corev1.EventTypeNormal, reason, "Node "+n.Name+" status is now: "+reason)
			}
		}
		status.Conditions[i] = c
	}
}

// problems of the runtime that keep the node from being ready.
func (n *Node) problems(ctx context.Context) string {
	status, err := n.Runtime.Status(ctx)
	if err != nil {
		return "container runtime is down: " + rpcText(err)
	}
	var out []string
	for _, c := range status.Conditions {
		if c.Status {
			continue
		}
		switch c.Type {
		case "RuntimeReady":
			out = append(out, fmt.Sprintf("container runtime not ready: RuntimeReady=false reason:%s message:%s", c.Reason, c.Message))
		case "NetworkReady":
			out = append(out, fmt.Sprintf("container runtime network not ready: NetworkReady=false reason:%s message:%s", c.Reason, c.Message))
		}
	}
	return strings.Join(out, ", ")
}

// renew says that the node lives.
func (n *Node) renew(ctx context.Context) {
	leases := client.For[*coordinationv1.Lease](n.Client)
	now := metav1.NewMicroTime(time.Now())
	duration := int32(leaseDuration)
	if n.lease == nil {
		if old, err := leases.Get(ctx, leasesIn, n.Name); err == nil {
			n.lease = old
		}
	}
	var err error
	if n.lease != nil {
		next := n.lease.DeepCopy()
		next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &n.Name, &duration, &now
		n.lease, err = leases.Update(ctx, next)
	} else {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: leasesIn}}
		if node := n.self(); node != nil {
			lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: node.UID}}
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &n.Name, &duration, &now
		n.lease, err = leases.Create(ctx, lease)
	}
	if err != nil {
		n.lease = nil
		if ctx.Err() == nil {
			n.Log.Warn("lease not renewed", "node", n.Name, "err", err)
		}
	}
}
