package scheduler

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
)

// lab is a scheduler on an API in memory, inside a synctest bubble.
type lab struct {
	*clientfake.Client
	t *testing.T
}

func start(t *testing.T, objects ...api.Object) lab {
	c := clientfake.New(builtin.Table(), objects...)
	s, err := New(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return lab{c, t}
}

// pod reads a pod, nil when there is none.
func (l lab) pod(name string) *corev1.Pod {
	p, err := client.For[*corev1.Pod](l.Client).Get(l.t.Context(), "ns", name)
	if err != nil {
		return nil
	}
	return p
}

func (l lab) nodeOf(name string) string {
	if p := l.pod(name); p != nil {
		return p.Spec.NodeName
	}
	return "no pod"
}

// refusal is what a pod's condition says, "" when it says nothing bad.
func (l lab) refusal(name string) string {
	for _, c := range l.pod(name).Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func testNode(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for _, c := range change {
		c(n)
	}
	return n
}

func testPod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)}}
	p.Spec.SchedulerName = corev1.DefaultSchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	for _, c := range change {
		c(p)
	}
	return p
}

func tainted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
}

func TestPlacesWherePossible(t *testing.T) {
	port := func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}}
	}
	cases := []struct {
		name          string
		nodes         []*corev1.Node
		before        []*corev1.Pod
		pod           *corev1.Pod
		node, message string
	}{
		{name: "room", nodes: []*corev1.Node{testNode("a", "1"), testNode("b", "4")}, pod: testPod("p", "2"), node: "b"},
		{name: "selector", nodes: []*corev1.Node{testNode("a", "4"), testNode("b", "4")}, node: "a",
			pod: testPod("p", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "a"} })},
		{name: "toleration", nodes: []*corev1.Node{testNode("a", "4", tainted)}, node: "a",
			pod: testPod("p", "1", func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
			})},
		{name: "port taken", nodes: []*corev1.Node{testNode("a", "4")}, pod: testPod("p", "1", port),
			before:  []*corev1.Pod{testPod("q", "1", port, func(p *corev1.Pod) { p.Spec.NodeName = "a" })},
			message: "Unschedulable: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{name: "reasons are counted", nodes: []*corev1.Node{testNode("a", "1"), testNode("b", "4", tainted), testNode("c", "4", tainted)}, pod: testPod("p", "2"),
			message: "Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {k: v}. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."},
		{name: "cordoned", nodes: []*corev1.Node{testNode("a", "4", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, pod: testPod("p", "1"),
			message: "Unschedulable: 0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."},
		{name: "no nodes", pod: testPod("p", "1"), message: "Unschedulable: no nodes available to schedule pods"},
		{name: "gated", nodes: []*corev1.Node{testNode("a", "4")},
			pod:     testPod("p", "1", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }),
			message: "SchedulingGated: Scheduling is blocked due to non-empty scheduling gates"},
		{name: "another scheduler's", nodes: []*corev1.Node{testNode("a", "4")},
			pod: testPod("p", "1", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t)
				for _, n := range c.nodes {
					l.Put(n)
				}
				for _, p := range c.before {
					l.Put(p)
				}
				synctest.Wait()
				l.Put(c.pod)
				synctest.Wait()
				if got := l.nodeOf("p"); got != c.node {
					t.Errorf("on node %q, want %q", got, c.node)
				}
				if got := l.refusal("p"); got != c.message {
					t.Errorf("condition %q, want %q", got, c.message)
				}
			})
		})
	}
}

func TestTriesAgainWhenSomethingHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, testNode("a", "2"))
		first := l.Put(testPod("first", "2"))
		synctest.Wait()
		l.Put(testPod("second", "2"))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if l.nodeOf("first") != "a" || l.nodeOf("second") != "" {
			t.Fatalf("first on %q, second on %q, want a and none", l.nodeOf("first"), l.nodeOf("second"))
		}
		l.Remove(first)
		synctest.Wait()
		if got := l.nodeOf("second"); got != "a" {
			t.Errorf("after the deletion on %q, want a", got)
		}
	})
}

func TestBindsAgainAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, testNode("a", "2"))
		var refused atomic.Int32
		l.FailWith(func(c clientfake.Call) error {
			if c.Subresource == "binding" && refused.Add(1) <= 2 {
				return errors.New("refused")
			}
			return nil
		})
		l.Put(testPod("p", "2"))
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if got := l.nodeOf("p"); got != "" {
			t.Fatalf("bound to %q before the back-off of 1 s and 2 s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := l.nodeOf("p"); got != "a" {
			t.Errorf("on %q, want a", got)
		}
	})
}

func TestGatesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, testNode("a", "2"))
		p := testPod("p", "1", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} })
		l.Put(p)
		synctest.Wait()
		next := l.pod("p").DeepCopy()
		next.Spec.SchedulingGates = nil
		l.Put(next)
		synctest.Wait()
		if got := l.nodeOf("p"); got != "a" {
			t.Errorf("on %q, want a", got)
		}
	})
}

// TestStatusOfChangedPod writes the status of a pod that somebody has changed since the scheduler looked at it.
func TestStatusOfChangedPod(t *testing.T) {
	c := clientfake.New(builtin.Table(), testPod("p", "1"))
	s, err := New(Config{Client: c})
	if err != nil {
		t.Fatal(err)
	}
	l := lab{c, t}
	seen := l.pod("p")
	changed := seen.DeepCopy()
	changed.Status.Message = "of somebody else"
	l.Put(changed)
	s.writeCondition(t.Context(), seen, corev1.PodReasonUnschedulable, "no room", "")
	if got := l.refusal("p"); got != "Unschedulable: no room" {
		t.Errorf("condition %q", got)
	}
	if got := l.pod("p").Status.Message; got != changed.Status.Message {
		t.Errorf("message %q, want %q", got, changed.Status.Message)
	}
}
