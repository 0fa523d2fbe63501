package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
	"proa/internal/queue"
)

// nodeGrace is how long a node may be silent before it counts as unknown.
const nodeGrace = 50 * time.Second

// nodeLifecycle watches the heartbeats of nodes. A silent node's conditions become Unknown, conditions become taints, and
// the pods of a node that is not ready become unready. It looks at a node when something of it changes and when its
// next heartbeat is overdue, never in between.
type nodeLifecycle struct {
	Deps
	queue  *queue.Queue[string]
	grace  time.Duration
	nodes  client.TypedLister[*corev1.Node]
	leases client.TypedLister[*coordinationv1.Lease]
	byNode *client.Index[*corev1.Pod]

	mu   sync.Mutex
	seen map[string]heartbeat
}

// heartbeat is the last sign of life, by this process's clock: the node's may differ.
type heartbeat struct {
	renewed time.Time // as the node says
	at      time.Time // when it was seen
}

func newNodeLifecycle(d Deps) Controller {
	return &nodeLifecycle{
		Deps: d, queue: queue.New[string](), grace: cmp.Or(d.Config.NodeMonitorGracePeriod, nodeGrace), seen: map[string]heartbeat{},
		byNode: client.NewIndex(func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }),
	}
}

func (c *nodeLifecycle) Run(ctx context.Context) error {
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	c.leases = client.For[*coordinationv1.Lease](c.Client).Lister(ctx)
	leases := client.For[*coordinationv1.Lease](c.Client).Scope()
	leases.Namespace = corev1.NamespaceNodeLease
	note := func(e client.Event) {
		c.byNode.Apply(e)
		switch obj := e.Object().(type) {
		case *corev1.Node:
			if e.New == nil {
				c.mu.Lock()
				delete(c.seen, obj.Name)
				c.mu.Unlock()
				return
			}
			old, ok := e.Old.(*corev1.Node)
			if !ok {
				c.Events.Eventf(obj, corev1.EventTypeNormal, "RegisteredNode", "Node %s event: Registered Node %s in Controller", obj.Name, obj.Name)
			}
			c.queue.Add(obj.Name)
			if ok && nodeReady(old) != nodeReady(obj) {
				// The first or the last healthy node decides over evictions on all others.
				for n := range c.nodes.All("") {
					if !nodeReady(n) {
						c.queue.Add(n.Name)
					}
				}
			}
		case *coordinationv1.Lease:
			if e.New != nil {
				c.beat(obj)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 4, c.sync, note, client.For[*corev1.Node](c.Client).Scope(), leases, client.For[*corev1.Pod](c.Client).Scope())
}

// beat takes note of a renewed lease. The node itself is only looked at if it had been given up.
func (c *nodeLifecycle) beat(l *coordinationv1.Lease) {
	if l.Spec.RenewTime == nil {
		return
	}
	c.mu.Lock()
	old := c.seen[l.Name]
	if !l.Spec.RenewTime.Time.Equal(old.renewed) {
		c.seen[l.Name] = heartbeat{l.Spec.RenewTime.Time, time.Now()}
	}
	c.mu.Unlock()
	if node, ok := c.nodes.Get("", l.Name); ok && time.Since(old.at) > c.grace && !nodeReady(node) {
		c.queue.Add(l.Name)
	}
}

func (c *nodeLifecycle) sync(ctx context.Context, name string) (time.Duration, error) {
	node, ok := c.nodes.Get("", name)
	if !ok {
		return 0, nil
	}
	next := node.DeepCopy()
	wait := c.monitor(next)
	access := client.For[*corev1.Node](c.Client)
	if !equality.Semantic.DeepEqual(next.Status, node.Status) {
		c.Log.Info("node stopped posting its status", "node", name)
		updated, err := access.UpdateStatus(ctx, next)
		if err != nil {
			return 0, ignoreGone(err)
		}
		c.Events.Eventf(updated, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", name)
		node = updated
	}
	tainted := node.DeepCopy()
	tainted.Spec.Taints = nodeTaints(node, c.anyReady())
	if !equality.Semantic.DeepEqual(tainted.Spec.Taints, node.Spec.Taints) {
		if _, err := access.Update(ctx, tainted); err != nil {
			return 0, ignoreGone(err)
		}
	}
	if !nodeReady(node) {
		if err := c.markPods(ctx, node); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// monitor gives up the conditions of a node that has been silent too long, and says when the next look is due.
func (c *nodeLifecycle) monitor(node *corev1.Node) time.Duration {
	c.mu.Lock()
	beat, ok := c.seen[node.Name]
	var posted time.Time
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			posted = cond.LastHeartbeatTime.Time
		}
	}
	if !ok || posted.After(beat.renewed) {
		beat = heartbeat{posted, time.Now()}
		if posted.IsZero() {
			beat.renewed = node.CreationTimestamp.Time
		}
		c.seen[node.Name] = beat
	}
	c.mu.Unlock()
	if left := c.grace - time.Since(beat.at); left > 0 {
		return left + 100*time.Millisecond
	}
	now := metav1.Now()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
		if i < 0 {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: corev1.ConditionUnknown, Reason: "NodeStatusNeverUpdated", Message: "Kubelet never posted node status.",
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: now,
			})
			continue
		}
		if cond := &node.Status.Conditions[i]; cond.Status != corev1.ConditionUnknown {
			cond.Status, cond.Reason, cond.Message, cond.LastTransitionTime = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", now
		}
	}
	return 0
}

// nodeReady reports the node's Ready condition.
func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// conditionTaints says which condition of a node, in which states, becomes which taint.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	taint     string
	evicts    bool
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady, true},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable, true},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure, false},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure, false},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure, false},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable, false},
}

// anyReady reports whether any node is healthy. When none is, the fault is likely on this side.
func (c *nodeLifecycle) anyReady() bool {
	for n := range c.nodes.All("") {
		if nodeReady(n) {
			return true
		}
	}
	return false
}

// nodeTaints returns the taints the node should have: its own, and those of its conditions and of being cordoned. Those
// that evict pods are left out unless evict.
func nodeTaints(node *corev1.Node, evict bool) []corev1.Taint {
	want := map[string]bool{} // key/effect
	managed := map[string]bool{string(corev1.TaintNodeUnschedulable) + "/NoSchedule": true}
	if node.Spec.Unschedulable {
		want[corev1.TaintNodeUnschedulable+"/NoSchedule"] = true
	}
	for _, t := range conditionTaints {
		managed[t.taint+"/NoSchedule"] = true
		if t.evicts {
			managed[t.taint+"/NoExecute"] = true
		}
		for _, c := range node.Status.Conditions {
			if c.Type == t.condition && c.Status == t.status {
				want[t.taint+"/NoSchedule"] = true
				if t.evicts && evict {
					want[t.taint+"/NoExecute"] = true
				}
			}
		}
	}
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		key := t.Key + "/" + string(t.Effect)
		if !managed[key] || want[key] {
			out = append(out, t)
			delete(want, key)
		}
	}
	// In whole seconds, as the API writes it: an agent that patches its Node must not seem to change a fraction.
	now := metav1.Now().Rfc3339Copy()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		i := len(key) - len("/NoExecute")
		if key[i] != '/' {
			i = len(key) - len("/NoSchedule")
		}
		out = append(out, corev1.Taint{Key: key[:i], Effect: corev1.TaintEffect(key[i+1:]), TimeAdded: &now})
	}
	return out
}

// markPods makes the pods of a node that is not ready unready, so that Services leave them out.
func (c *nodeLifecycle) markPods(ctx context.Context, node *corev1.Node) error {
	pods := client.For[*corev1.Pod](c.Client)
	for p := range c.podsOf(node.Name) {
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if i < 0 || p.Status.Conditions[i].Status != corev1.ConditionTrue {
			continue
		}
		next := p.DeepCopy()
		next.Status.Conditions[i].Status = corev1.ConditionFalse
		next.Status.Conditions[i].LastTransitionTime = metav1.Now()
		updated, err := pods.UpdateStatus(ctx, next)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return err
		}
		c.Events.Event(updated, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	}
	return nil
}

// podsOf copies the list, so that the index is free while pods are written.
func (c *nodeLifecycle) podsOf(node string) func(yield func(*corev1.Pod) bool) {
	return slices.Values(slices.Collect(c.byNode.Lookup(node)))
}
