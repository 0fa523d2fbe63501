package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/api/builtin"
	"proa/client"
)

// fake is an API with nodes and pods that the scheduler alone writes to.
type fake struct {
	client.Interface
	table  *api.Table
	events chan client.Event

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	refuse  int // bindings still to be refused
	message map[string]string
}

func newFake() *fake {
	return &fake{table: builtin.Table(), events: make(chan client.Event, 1000), pods: map[string]*corev1.Pod{}, message: map[string]string{}}
}

func (f *fake) Table() *api.Table { return f.table }

func (f *fake) Subscribe(ctx context.Context, handle func(client.Event), scopes ...client.Scope) error {
	handle(client.Event{})
	for {
		select {
		case e := <-f.events:
			handle(e)
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fake) Post(_ context.Context, _ *api.Resource, namespace, name, sub string, body runtime.Object) (runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse > 0 {
		f.refuse--
		return nil, fmt.Errorf("refused")
	}
	old := f.pods[name]
	pod := old.DeepCopy()
	pod.Spec.NodeName = body.(*corev1.Binding).Target.Name
	f.pods[name] = pod
	f.events <- client.Event{Resource: api.For[*corev1.Pod](f.table), Old: old, New: pod}
	return body, nil
}

func (f *fake) Patch(_ context.Context, _ *api.Resource, namespace, name, sub string, _ types.PatchType, data []byte, _ metav1.PatchOptions) (api.Object, error) {
	var patch corev1.Pod
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.message[name] = string(patch.Status.Conditions[0].Reason) + ": " + patch.Status.Conditions[0].Message
	return f.pods[name], nil
}

func (f *fake) setPod(pod *corev1.Pod) {
	f.mu.Lock()
	old := f.pods[pod.Name]
	f.pods[pod.Name] = pod
	f.mu.Unlock()
	e := client.Event{Resource: api.For[*corev1.Pod](f.table), New: pod}
	if old != nil {
		e.Old = old
	}
	f.events <- e
}

func (f *fake) deletePod(name string) {
	f.mu.Lock()
	old := f.pods[name]
	delete(f.pods, name)
	f.mu.Unlock()
	f.events <- client.Event{Resource: api.For[*corev1.Pod](f.table), Old: old}
}

func (f *fake) setNode(old, node *corev1.Node) {
	e := client.Event{Resource: api.For[*corev1.Node](f.table), New: node}
	if old != nil {
		e.Old = old
	}
	f.events <- e
}

func (f *fake) nodeOf(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[name].Spec.NodeName
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

// start runs a scheduler inside a synctest bubble until the test ends.
func start(t *testing.T, f *fake) {
	s, err := New(Config{Client: f})
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
			message: "Unschedulable: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."},
		{name: "reasons are counted", nodes: []*corev1.Node{testNode("a", "1"), testNode("b", "4", tainted), testNode("c", "4", tainted)}, pod: testPod("p", "2"),
			message: "Unschedulable: 0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {k: v}."},
		{name: "cordoned", nodes: []*corev1.Node{testNode("a", "4", func(n *corev1.Node) { n.Spec.Unschedulable = true })}, pod: testPod("p", "1"),
			message: "Unschedulable: 0/1 nodes are available: 1 node(s) were unschedulable."},
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
				f := newFake()
				start(t, f)
				for _, n := range c.nodes {
					f.setNode(nil, n)
				}
				for _, p := range c.before {
					f.setPod(p)
				}
				synctest.Wait()
				f.setPod(c.pod)
				synctest.Wait()
				if got := f.nodeOf("p"); got != c.node {
					t.Errorf("on node %q, want %q", got, c.node)
				}
				if got := f.message["p"]; got != c.message {
					t.Errorf("condition %q, want %q", got, c.message)
				}
			})
		})
	}
}

func TestTriesAgainWhenSomethingHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		start(t, f)
		a := testNode("a", "2")
		f.setNode(nil, a)
		f.setPod(testPod("first", "2"))
		synctest.Wait()
		f.setPod(testPod("second", "2"))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if f.nodeOf("first") != "a" || f.nodeOf("second") != "" {
			t.Fatalf("first on %q, second on %q, want a and none", f.nodeOf("first"), f.nodeOf("second"))
		}
		f.deletePod("first")
		synctest.Wait()
		if got := f.nodeOf("second"); got != "a" {
			t.Errorf("after the deletion on %q, want a", got)
		}
	})
}

func TestBindsAgainAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.refuse = 2
		start(t, f)
		f.setNode(nil, testNode("a", "2"))
		f.setPod(testPod("p", "2"))
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if got := f.nodeOf("p"); got != "" {
			t.Fatalf("bound to %q before the back-off of 1 s and 2 s", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := f.nodeOf("p"); got != "a" {
			t.Errorf("on %q, want a", got)
		}
	})
}
