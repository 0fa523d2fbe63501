package controllers

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
)

func (c *cluster) putNode(name string, ready corev1.ConditionStatus) {
	now := metav1.Now()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if old, err := client.For[*corev1.Node](c).Get(context.Background(), "", name); err == nil {
		n = old.DeepCopy()
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
	c.Put(n)
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	n, err := client.For[*corev1.Node](c).Get(context.Background(), "", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) taints(name string) string {
	var out []string
	for _, t := range c.node(name).Spec.Taints {
		out = append(out, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// beat renews the lease of a node every 10 s until stop is closed.
func (c *cluster) beat(name string, stop chan struct{}) {
	go func() {
		for {
			c.Put(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
				Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NowMicro())},
			})
			select {
			case <-stop:
				return
			case <-c.t.Context().Done():
				return
			case <-time.After(10 * time.Second):
			}
		}
	}()
}

func TestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "node-lifecycle-controller")
		c.holdIf(func(*corev1.Pod) bool { return true })
		stop := make(chan struct{})
		c.putNode("node", corev1.ConditionTrue)
		c.putNode("other", corev1.ConditionTrue)
		c.beat("node", stop)
		c.beat("other", nil)
		c.Put(servicePod("p", "10.1.0.1", 80, "ready"))
		time.Sleep(10 * time.Minute)
		if n := c.node("node"); !nodeReady(n) || c.taints("node") != "" {
			t.Fatalf("a node whose lease is renewed: %+v, taints %q", n.Status.Conditions, c.taints("node"))
		}
		close(stop)
		time.Sleep(61 * time.Second)
		n := c.node("node")
		for _, cond := range n.Status.Conditions {
			if cond.Status != corev1.ConditionUnknown {
				t.Errorf("%s of a silent node is %s", cond.Type, cond.Status)
			}
		}
		if r := n.Status.Conditions[0]; r.Reason != "NodeStatusUnknown" || len(n.Status.Conditions) != 4 {
			t.Errorf("%d conditions, reason %q", len(n.Status.Conditions), r.Reason)
		}
		if got, want := c.taints("node"), "unreachable:NoExecute unreachable:NoSchedule"; got != want {
			t.Errorf("taints %q, want %q", got, want)
		}
		if podReady(read[*corev1.Pod](c, "p")) {
			t.Error("a pod of a silent node is ready")
		}
		c.wantEvent("Normal NodeNotReady Node node status is now: NodeNotReady")
		c.wantEvent("Warning NodeNotReady Node is not ready")
		if c.taints("other") != "" {
			t.Errorf("taints %q of the other node", c.taints("other"))
		}

		c.putNode("node", corev1.ConditionFalse)
		c.beat("node", nil)
		c.settle()
		if got, want := c.taints("node"), "not-ready:NoExecute not-ready:NoSchedule"; got != want {
			t.Errorf("taints %q, want %q", got, want)
		}
		c.putNode("node", corev1.ConditionTrue)
		time.Sleep(5 * time.Minute)
		if got := c.taints("node"); got != "" {
			t.Errorf("taints %q after recovery", got)
		}
	})
}

func TestNoNodeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "node-lifecycle-controller")
		c.beat("a", nil)
		c.beat("b", nil)
		c.putNode("a", corev1.ConditionFalse)
		c.putNode("b", corev1.ConditionFalse)
		c.settle()
		if got := c.taints("a"); got != "not-ready:NoSchedule" {
			t.Errorf("with no healthy node the taints are %q, want none that evicts", got)
		}
		c.putNode("b", corev1.ConditionTrue)
		c.settle()
		if got := c.taints("a") + "/" + c.taints("b"); got != "not-ready:NoExecute not-ready:NoSchedule/" {
			t.Errorf("with a healthy node the taints are %q", got)
		}
	})
}

func TestCordonTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "node-lifecycle-controller")
		c.beat("n", nil)
		c.putNode("n", corev1.ConditionTrue)
		for _, on := range []bool{true, false} {
			n := c.node("n").DeepCopy()
			n.Spec.Unschedulable = on
			if on {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoSchedule})
			}
			c.Put(n)
			c.settle()
			if got := c.taints("n"); on != strings.Contains(got, "unschedulable:NoSchedule") || !strings.Contains(got, "own:NoSchedule") {
				t.Errorf("unschedulable %v: taints %q", on, got)
			}
		}
	})
}

func TestTaintEviction(t *testing.T) {
	for _, test := range []struct {
		name        string
		tolerations []corev1.Toleration
		after       time.Duration // evicted; 0 never
	}{
		{"not tolerated", nil, time.Millisecond},
		{"another taint tolerated", []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}, time.Millisecond},
		{"tolerated", []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}, 0},
		{"tolerated for a while", []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)}}, time.Minute},
		{"tolerated for less than no time", []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](-1)}}, time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "taint-eviction-controller")
				c.holdIf(func(*corev1.Pod) bool { return true })
				c.putNode("node", corev1.ConditionTrue)
				p := servicePod("p", "10.1.0.1", 80, "ready")
				p.Spec.Tolerations, p.Finalizers = test.tolerations, []string{"example.com/hold"}
				c.Put(p)
				c.taint("node", "k")
				if test.after == 0 {
					test.after = time.Hour
					defer func() {
						if len(c.events()) > 0 {
							t.Errorf("events %v", c.events())
						}
					}()
				} else if test.after > time.Second {
					time.Sleep(test.after - time.Second)
					synctest.Wait()
					if read[*corev1.Pod](c, "p").DeletionTimestamp != nil {
						t.Error("evicted too early")
					}
				}
				time.Sleep(2 * time.Second)
				p = read[*corev1.Pod](c, "p")
				if deleted := p.DeletionTimestamp != nil; deleted != (test.after < time.Hour) {
					t.Errorf("deleted: %v", deleted)
				} else if deleted {
					i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
					if i < 0 || p.Status.Conditions[i].Reason != "DeletionByTaintManager" {
						t.Errorf("conditions %+v", p.Status.Conditions)
					}
					c.wantEvent("Normal TaintManagerEviction Marking for deletion Pod ns/p")
				}
			})
		})
	}
}

// taint replaces the taints of a node by one that evicts, or none.
func (c *cluster) taint(node, key string) {
	n := c.node(node).DeepCopy()
	if n.Spec.Taints = nil; key != "" {
		n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}
	}
	c.Put(n)
	c.settle()
}

func TestTaintEvictionCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "taint-eviction-controller")
		c.holdIf(func(*corev1.Pod) bool { return true })
		c.putNode("node", corev1.ConditionTrue)
		c.taint("node", "k")
		p := servicePod("p", "10.1.0.1", 80, "ready")
		p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](60)}}
		c.Put(p)
		time.Sleep(50 * time.Second)
		c.taint("node", "")
		c.wantEvent("Normal TaintManagerEviction Cancelling deletion of Pod ns/p")
		c.taint("node", "k")
		time.Sleep(50 * time.Second)
		if len(c.pods()) != 1 {
			t.Error("the time of the first taint counts although it was taken away")
		}
		time.Sleep(15 * time.Second)
		if len(c.pods()) != 0 {
			t.Error("not evicted")
		}
	})
}

func TestNodeRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/22"), netip.MustParsePrefix("fd00::/48")}}
		c := startConfigured(t, config, "node-ipam-controller")
		own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.NodeSpec{PodCIDR: "10.8.1.128/25", PodCIDRs: []string{"10.8.1.128/25"}}}
		c.Put(own)
		for _, name := range []string{"a", "b", "c"} {
			c.putNode(name, corev1.ConditionTrue)
			c.settle()
		}
		for name, want := range map[string]string{"a": "10.8.0.0/24 fd00::/64", "b": "10.8.2.0/24 fd00:0:0:1::/64", "c": "10.8.3.0/24 fd00:0:0:2::/64"} {
			if n := c.node(name); strings.Join(n.Spec.PodCIDRs, " ") != want || n.Spec.PodCIDR != n.Spec.PodCIDRs[0] {
				t.Errorf("node %s has %q, want %q", name, n.Spec.PodCIDRs, want)
			}
		}
		c.putNode("d", corev1.ConditionTrue)
		c.settle()
		if got := c.node("d").Spec.PodCIDRs; len(got) > 0 {
			t.Errorf("a fourth node has %q", got)
		}
		c.wantEvent("Normal CIDRNotAvailable Node d status is now: CIDRNotAvailable")
		c.Remove(c.node("b"))
		time.Sleep(20 * time.Minute)
		if got := c.node("d").Spec.PodCIDR; got != "10.8.2.0/24" {
			t.Errorf("after a node went away the waiting one has %q, want its range", got)
		}
	})
}

func TestPodGC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startConfigured(t, Config{TerminatedPodGCThreshold: 2}, "pod-garbage-collector-controller")
		c.holdIf(func(*corev1.Pod) bool { return true })
		c.putNode("node", corev1.ConditionTrue)
		for i, name := range []string{"e1", "e2", "e3"} {
			p := servicePod(name, "10.1.0.1", 80, "ended")
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Second))
			c.Put(p)
		}
		c.Put(servicePod("kept", "10.1.0.1", 80, "ready"))
		lost := servicePod("lost", "10.1.0.1", 80, "ready")
		lost.Spec.NodeName, lost.Finalizers = "gone", []string{"example.com/hold"}
		c.Put(lost)
		c.settle()
		if got, want := c.podNames(), "e2 e3 kept lost"; got != want {
			t.Errorf("pods %q, want %q", got, want)
		}
		time.Sleep(time.Minute)
		lost = read[*corev1.Pod](c, "lost")
		i := slices.IndexFunc(lost.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		if lost.DeletionTimestamp == nil || lost.Status.Phase != corev1.PodFailed || i < 0 || lost.Status.Conditions[i].Reason != "DeletionByPodGC" {
			t.Errorf("pod of a missing node: deleted at %v, %s, %+v", lost.DeletionTimestamp, lost.Status.Phase, lost.Status.Conditions)
		}
		c.Remove(c.node("node"))
		time.Sleep(30 * time.Second)
		if got := c.podNames(); !strings.Contains(got, "kept") {
			t.Error("pods are removed as soon as their node goes")
		}
		time.Sleep(15 * time.Second)
		if got := c.podNames(); got != "lost" {
			t.Errorf("pods %q after their node went away", got)
		}
	})
}

func TestTaintsSurviveTheirEncoding(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	for _, taint := range nodeTaints(node, true) {
		if at := taint.TimeAdded; at == nil || at.Nanosecond() != 0 {
			t.Errorf("%s was added at %v, want whole seconds", taint.ToString(), at)
		}
	}
}

// Users look for events by the component that upstream names, which is not always the controller's name.
func TestEventSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "node-lifecycle-controller")
		create(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		list, err := client.For[*corev1.Event](c).List(t.Context(), "", metav1.ListOptions{})
		if err != nil || len(list) != 1 {
			t.Fatalf("events %v, error %v", list, err)
		}
		if got := list[0].Source.Component; got != "node-controller" {
			t.Errorf("%s comes from %q", list[0].Reason, got)
		}
	})
}
