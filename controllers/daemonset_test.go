package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/client"
)

func daemonSet(change func(*appsv1.DaemonSetSpec)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "ns"},
		Spec:       appsv1.DaemonSetSpec{Selector: selectApp("agent"), Template: podTemplate("agent", "a")},
	}
	change(&ds.Spec)
	return ds
}

func plainDaemons(*appsv1.DaemonSetSpec) {}

func addNodes(c *cluster, n int) {
	for i := range n {
		c.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{"n": fmt.Sprint(i)}}})
	}
}

// perNode is "node:image ..." of all pods.
func (c *cluster) perNode() string {
	var out []string
	for _, p := range c.pods() {
		out = append(out, podNode(p)+":"+p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func changeNode(c *cluster, name string, change func(*corev1.Node)) {
	c.t.Helper()
	node, err := client.For[*corev1.Node](c).Get(context.Background(), "", name)
	if err != nil {
		c.t.Fatal(err)
	}
	node = node.DeepCopy()
	change(node)
	c.Put(node)
	c.settle()
}

func TestDaemonSetOnEveryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "daemonset-controller")
		addNodes(c, 3)
		create(c, daemonSet(plainDaemons))
		if got, want := c.perNode(), "n0:a n1:a n2:a"; got != want {
			t.Fatalf("pods %q, want %q", got, want)
		}
		pod := c.pods()[0]
		if term := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]; len(term.MatchFields) != 1 || term.MatchFields[0].Key != "metadata.name" {
			t.Errorf("affinity %v, want the node's name as a match field", term)
		}
		tolerates := func(key string, effect corev1.TaintEffect) bool {
			return slices.ContainsFunc(pod.Spec.Tolerations, func(x corev1.Toleration) bool {
				return x.Key == key && x.Effect == effect && x.Operator == corev1.TolerationOpExists
			})
		}
		if !tolerates(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute) || !tolerates(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule) || tolerates(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule) {
			t.Errorf("tolerations %v", pod.Spec.Tolerations)
		}
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == "" {
			t.Error("the pod has no revision")
		}
		want := appsv1.DaemonSetStatus{
			CurrentNumberScheduled: 3, DesiredNumberScheduled: 3, NumberReady: 3, NumberAvailable: 3, UpdatedNumberScheduled: 3, ObservedGeneration: 1,
		}
		if d := cmp.Diff(want, read[*appsv1.DaemonSet](c, "agent").Status); d != "" {
			t.Errorf("status (-want +got):\n%s", d)
		}
		addNodes(c, 4) // one more, the others written again
		c.settle()
		c.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}})
		c.settle()
		if got, want := c.perNode(), "n1:a n2:a n3:a"; got != want {
			t.Errorf("after nodes came and went %q, want %q", got, want)
		}
	})
}

func TestDaemonSetNodeRules(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	for name, test := range map[string]struct {
		spec         func(*appsv1.DaemonSetSpec)
		node         func(*corev1.Node) // change of n1 before
		after        func(*corev1.Node) // change of n1 once pods run
		want, later  string
		misscheduled int32
	}{
		"node selector": {spec: func(s *appsv1.DaemonSetSpec) { s.Template.Spec.NodeSelector = map[string]string{"n": "0"} }, want: "n0", later: "n0"},
		"label comes and goes": {
			spec:  func(s *appsv1.DaemonSetSpec) { s.Template.Spec.NodeSelector = map[string]string{"n": "1"} },
			after: func(n *corev1.Node) { n.Labels["n"] = "other" }, want: "n1", later: "",
		},
		"NoSchedule keeps new pods off":   {node: taint("t", corev1.TaintEffectNoSchedule), want: "n0", later: "n0"},
		"NoSchedule leaves running pods":  {after: taint("t", corev1.TaintEffectNoSchedule), want: "n0 n1", later: "n0 n1", misscheduled: 1},
		"NoExecute removes pods":          {after: taint("t", corev1.TaintEffectNoExecute), want: "n0 n1", later: "n0"},
		"unready and cordoned nodes stay": {node: taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute), after: taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), want: "n0 n1", later: "n0 n1"},
		"toleration": {
			spec: func(s *appsv1.DaemonSetSpec) {
				s.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			},
			node: taint("t", corev1.TaintEffectNoExecute), want: "n0 n1", later: "n0 n1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "daemonset-controller")
				addNodes(c, 2)
				if test.node != nil {
					changeNode(c, "n1", test.node)
				}
				if test.spec == nil {
					test.spec = plainDaemons
				}
				create(c, daemonSet(test.spec))
				if got := strings.ReplaceAll(c.perNode(), ":a", ""); got != test.want {
					t.Errorf("pods on %q, want %q", got, test.want)
				}
				if test.after != nil {
					changeNode(c, "n1", test.after)
				}
				if got := strings.ReplaceAll(c.perNode(), ":a", ""); got != test.later {
					t.Errorf("later pods on %q, want %q", got, test.later)
				}
				if got := read[*appsv1.DaemonSet](c, "agent").Status.NumberMisscheduled; got != test.misscheduled {
					t.Errorf("%d misscheduled, want %d", got, test.misscheduled)
				}
			})
		})
	}
}

func TestDaemonSetRollsOut(t *testing.T) {
	for name, test := range map[string]struct {
		rolling      appsv1.RollingUpdateDaemonSet
		stuck, final string
	}{
		"max unavailable": {appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(2)), MaxSurge: new(intstr.FromInt32(0))}, "a:2 b:2", "n0:b n1:b n2:b n3:b"},
		"max surge":       {appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromString("25%"))}, "a:4 b:1", "n0:b n1:b n2:b n3:b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "daemonset-controller")
				addNodes(c, 4)
				create(c, daemonSet(func(s *appsv1.DaemonSetSpec) {
					s.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &test.rolling}
				}))
				c.holdIf(func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "b" })
				edit(c, "agent", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "b" })
				counts := map[string]int{}
				for _, p := range c.pods() {
					counts[p.Spec.Containers[0].Image]++
				}
				if got := fmt.Sprintf("a:%d b:%d", counts["a"], counts["b"]); got != test.stuck {
					t.Errorf("while new pods do not start: %s, want %s", got, test.stuck)
				}
				c.holdIf(never)
				for _, p := range c.pods() {
					if p.Status.Phase == corev1.PodPending {
						c.setPod(p.Name, corev1.PodRunning)
					}
				}
				c.settle()
				if got := c.perNode(); got != test.final {
					t.Errorf("arrived at %q, want %q", got, test.final)
				}
				if s := read[*appsv1.DaemonSet](c, "agent").Status; s.UpdatedNumberScheduled != 4 || s.NumberAvailable != 4 || s.NumberUnavailable != 0 {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

func TestDaemonSetOnDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "daemonset-controller")
		addNodes(c, 2)
		create(c, daemonSet(func(s *appsv1.DaemonSetSpec) { s.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType }))
		edit(c, "agent", func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "b" })
		if got, want := c.perNode(), "n0:a n1:a"; got != want {
			t.Errorf("pods %q, want %q", got, want)
		}
		for _, p := range c.pods() {
			if podNode(p) == "n0" {
				if err := client.For[*corev1.Pod](c).Delete(context.Background(), "ns", p.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.settle()
		if got, want := c.perNode(), "n0:b n1:a"; got != want {
			t.Errorf("pods %q, want %q", got, want)
		}
	})
}

// A daemon that fails again and again is restarted at growing intervals.
func TestDaemonSetFailedPodsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "daemonset-controller")
		addNodes(c, 1)
		create(c, daemonSet(plainDaemons))
		made := 0
		c.watch(func(e client.Event) {
			if p, ok := e.New.(*corev1.Pod); ok && e.Old == nil {
				made++
				go func() {
					time.Sleep(100 * time.Millisecond)
					c.setPod(p.Name, corev1.PodFailed)
				}()
			}
		}, client.For[*corev1.Pod](c).Scope())
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if made < 4 || made > 15 {
			t.Errorf("%d pods within two minutes, want some but not many", made)
		}
	})
}
