package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
	"proa/client"
)

// feed is a client whose events the test sends.
type feed struct {
	client.Interface
	table  *api.Table
	events chan client.Event
}

func newFeed() *feed {
	resource := func(kind, plural string, object func() api.Object) *api.Resource {
		r := &api.Resource{Plural: plural, New: object}
		r.Kind, r.Version = kind, "v1"
		return r
	}
	return &feed{events: make(chan client.Event), table: api.NewTable([]*api.Resource{
		resource("Service", "services", func() api.Object { return new(corev1.Service) }),
		resource("EndpointSlice", "endpointslices", func() api.Object { return new(discoveryv1.EndpointSlice) }),
		resource("Node", "nodes", func() api.Object { return new(corev1.Node) }),
		resource("Pod", "pods", func() api.Object { return new(corev1.Pod) }),
	})}
}

func (f *feed) Table() *api.Table { return f.table }

func (f *feed) Subscribe(ctx context.Context, handle func(client.Event), _ ...client.Scope) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-f.events:
			handle(e)
		}
	}
}

// record keeps transactions as text and refuses as many as fail says.
type record struct {
	mu    sync.Mutex
	fail  int
	texts []string
}

func (r *record) Apply(t Transaction) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail > 0 {
		r.fail--
		return errors.New("refused")
	}
	r.texts = append(r.texts, t.String())
	return nil
}

func (r *record) Remove() error { return nil }

func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.texts
	r.texts = nil
	return out
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, rules := newFeed(), &record{}
		p, err := New(Config{Client: f, NodeName: "node", PodCIDRs: podCIDRs, Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		resource := new(api.Resource)
		send := func(old, obj api.Object) {
			f.events <- client.Event{Resource: resource, Old: old, New: obj}
			synctest.Wait()
		}

		svc := service("ns", "web", "10.96.0.20", nil)
		send(nil, svc)
		slice := endpointSlice(svc, "10.244.0.5")
		send(nil, slice)
		if got := rules.take(); len(got) != 0 {
			t.Errorf("%d transactions before all objects are known; they would take rules away that are needed", len(got))
		}
		f.events <- client.Event{}
		synctest.Wait()
		got := rules.take()
		if len(got) != 1 || !strings.HasPrefix(got[0], "reset table") || !strings.Contains(got[0], "10.244.0.5:8080") {
			t.Fatalf("the first transaction is not the whole table: %v", got)
		}

		more := endpointSlice(svc, "10.244.0.5", "10.244.0.6")
		send(slice, more)
		if got := rules.take(); len(got) != 1 || strings.Contains(got[0], "reset") || !strings.Contains(got[0], "10.244.0.6:8080") {
			t.Errorf("a new endpoint makes %v, want one small transaction", got)
		}
		send(svc, svc)
		send(nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
		if got := rules.take(); len(got) != 0 {
			t.Errorf("events without a change make transactions: %v", got)
		}

		// After a refusal nobody knows what the kernel has, so the table is made anew.
		rules.mu.Lock()
		rules.fail = 1
		rules.mu.Unlock()
		send(more, slice)
		if got := rules.take(); len(got) != 0 {
			t.Errorf("refused transactions are recorded: %v", got)
		}
		time.Sleep(firstRetry)
		synctest.Wait()
		if got := rules.take(); len(got) != 1 || !strings.HasPrefix(got[0], "reset table") || strings.Contains(got[0], "10.244.0.6:8080") {
			t.Errorf("after a refusal comes %v, want the whole table as it should be", got)
		}

		// The ports of the node that a pod asks for lead to it as long as it has an address.
		pod := hostPod("p", nil, corev1.ContainerPort{HostPort: 8053, ContainerPort: 53, Protocol: corev1.ProtocolUDP})
		send(nil, pod)
		running := pod.DeepCopy()
		running.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.9"}}
		send(pod, running)
		ready := running.DeepCopy()
		ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		send(running, ready)
		if got := rules.take(); len(got) != 1 || !strings.Contains(got[0], "add element host-ports4 { udp . 8053") || !strings.Contains(got[0], "10.244.0.9:53") {
			t.Errorf("a pod with a host port makes %v, want one transaction", got)
		}
		send(ready, nil)
		if got := rules.take(); len(got) != 1 || !strings.Contains(got[0], "delete element host-ports4 { udp . 8053") {
			t.Errorf("a deleted pod makes %v", got)
		}

		send(svc, nil)
		if got := rules.take(); len(got) != 1 || !strings.Contains(got[0], "delete element service-ips4 { 10.96.0.20 . tcp . 80") {
			t.Errorf("a deleted Service makes %v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returns %v", err)
		}
	})
}
