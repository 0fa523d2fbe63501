package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/node"
	"proa/node/simulated"
)

// TestManyPods checks that a node full of pods comes up and goes away as a whole.
func TestManyPods(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		for i := range 100 {
			w.create(newPod(fmt.Sprintf("p%d", i)))
		}
		w.after(5 * time.Second)
		pods, err := w.pods.List(t.Context(), "default", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		addresses := map[string]bool{}
		for _, p := range pods {
			if p.Status.Phase != corev1.PodRunning {
				t.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
			addresses[p.Status.PodIP] = true
		}
		if len(addresses) != 100 {
			t.Errorf("100 pods have %d addresses", len(addresses))
		}
		for _, p := range pods {
			w.delete(p.Name, 30)
		}
		w.after(5 * time.Second)
		if pods, _ := w.pods.List(t.Context(), "default", metav1.ListOptions{}); len(pods) != 0 {
			t.Errorf("%d pods are left", len(pods))
		}
		if list, _ := w.runtime.ListPodSandbox(t.Context(), nil); len(list) != 0 {
			t.Errorf("%d sandboxes are left", len(list))
		}
	})
}

// TestStatusWrites checks which statuses of a new pod the API gets to see.
func TestStatusWrites(t *testing.T) {
	tests := map[string]struct {
		startAfter string
		want       []corev1.PodPhase
	}{
		"quick": {"10ms", []corev1.PodPhase{corev1.PodRunning}},
		"slow":  {"1s", []corev1.PodPhase{corev1.PodPending, corev1.PodRunning}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inWorld(t, simulated.Config{}, func(w *world) {
				var got []corev1.PodPhase
				ctx, cancel := context.WithCancel(w.t.Context())
				defer cancel()
				go func() {
					_ = w.api.Subscribe(ctx, func(e client.Event) {
						if p, ok := e.New.(*corev1.Pod); ok && p.Status.StartTime != nil {
							got = append(got, p.Status.Phase)
						}
					}, w.pods.Scope())
				}()
				w.create(newPod("p", func(p *corev1.Pod) {
					p.Annotations = map[string]string{simulated.AnnotationStartAfter: test.startAfter}
				}))
				w.after(2 * time.Second)
				if !slices.Equal(got, test.want) {
					t.Errorf("statuses written are %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestHollow checks that a hollow node asks nobody: what answers at a hollow pod's address is somebody else.
func TestHollow(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.stop()
		w.start(func(c *node.Config) { c.Hollow = true })
		at := func(action corev1.ProbeHandler) *corev1.Probe {
			return &corev1.Probe{ProbeHandler: action, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1}
		}
		port := intstr.FromInt32(1) // where nothing listens
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.StartupProbe = at(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1", Port: port}})
			c.ReadinessProbe = at(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: "/", Port: port, Scheme: corev1.URISchemeHTTP}})
			c.LivenessProbe = at(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}})
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: port, Scheme: corev1.URISchemeHTTP}}}
		})))
		w.after(5 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		if s := w.container("p", "c"); s.RestartCount != 0 || len(w.events("Unhealthy"))+len(w.events("FailedPostStartHook")) > 0 {
			t.Errorf("container is %+v, events %q", s, w.events("Unhealthy"))
		}
	})
}

// BenchmarkHollow reports what an idle hollow node costs, and a pod on it.
func BenchmarkHollow(b *testing.B) {
	const count, pods = 100, 20
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	api := clientfake.New(builtin.Table())
	log := slog.New(slog.DiscardHandler)
	measure := func() (heap uint64, goroutines int) {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse, goruntime.NumGoroutine()
	}
	b.StopTimer()
	heap0, goroutines0 := measure()
	for i := range count {
		agent, err := node.New(node.Config{
			Name: fmt.Sprintf("hollow-%d", i), Client: api, Log: log,
			Runtime: simulated.New(simulated.Config{PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i), 0}), 24)}}),
			Subscribe: func(ctx context.Context, handle func(client.Event)) error {
				scope := client.For[*corev1.Pod](api).Scope()
				scope.Labels = labels.SelectorFromSet(labels.Set{"node": fmt.Sprint(i)})
				return api.Subscribe(ctx, handle, scope)
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() { _ = agent.Run(ctx) })
	}
	time.Sleep(time.Second)
	heap1, goroutines1 := measure()
	for i := range count {
		for j := range pods {
			p := newPod(fmt.Sprintf("p-%d-%d", i, j), func(p *corev1.Pod) {
				p.Spec.NodeName = fmt.Sprintf("hollow-%d", i)
				p.Labels = map[string]string{"node": fmt.Sprint(i)}
			})
			api.Put(p)
		}
	}
	start := time.Now()
	for running := 0; running < count*pods; {
		if time.Since(start) > time.Minute {
			b.Fatalf("after a minute %d of %d pods are running", running, count*pods)
		}
		time.Sleep(50 * time.Millisecond)
		list, err := client.For[*corev1.Pod](api).List(ctx, "", metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		running = 0
		for _, p := range list {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
	}
	took := time.Since(start)
	time.Sleep(time.Second)
	heap2, goroutines2 := measure()
	b.ReportMetric(float64(heap1-heap0)/count, "B/node")
	b.ReportMetric(float64(goroutines1-goroutines0)/count, "goroutines/node")
	b.ReportMetric(float64(heap2-heap1)/count/pods, "B/pod")
	b.ReportMetric(float64(goroutines2-goroutines1)/count/pods, "goroutines/pod")
	b.ReportMetric(float64(took.Microseconds())/count/pods, "µs/pod")
}
