package controllers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/client/events"
)

// cluster runs controllers on an API in memory, with a node that starts and ends pods at once. It lives in a synctest bubble.
type cluster struct {
	*clientfake.Client
	t *testing.T

	mu sync.Mutex
	// hold keeps the node from starting a pod for which it is true.
	hold func(*corev1.Pod) bool
}

// startCluster runs the named controllers of List until the test ends.
func startCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	return startConfigured(t, Config{}, names...)
}

// startConfigured is startCluster with settings.
func startConfigured(t *testing.T, config Config, names ...string) *cluster {
	t.Helper()
	c := &cluster{Client: clientfake.New(builtin.Table()), t: t}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	log := slog.New(slog.DiscardHandler)
	for _, e := range List() {
		if !slices.Contains(names, e.Name) {
			continue
		}
		recorder := events.New(c, log, e.eventSource(), "")
		controller := e.New(Deps{Client: c, Log: log, Events: recorder, Config: config})
		wg.Go(func() { recorder.Run(ctx) })
		wg.Go(func() { controller.Run(ctx) })
	}
	wg.Go(func() {
		c.Subscribe(ctx, func(e client.Event) {
			if pod, ok := e.New.(*corev1.Pod); ok {
				c.runPod(ctx, pod)
			}
		}, client.For[*corev1.Pod](c).Scope())
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

// runPod does what a scheduler and a node would: start a new pod, take a deleted one down.
func (c *cluster) runPod(ctx context.Context, pod *corev1.Pod) {
	c.mu.Lock()
	held := c.hold != nil && c.hold(pod)
	c.mu.Unlock()
	switch {
	case pod.DeletionTimestamp != nil:
		c.Delete(ctx, client.For[*corev1.Pod](c).Kind(), pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	case pod.Status.Phase == corev1.PodPending && !held:
		c.setPod(pod.Name, corev1.PodRunning)
	}
}

func (c *cluster) holdIf(hold func(*corev1.Pod) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = hold
}

// setPod gives a pod a phase; a running pod is ready.
func (c *cluster) setPod(name string, phase corev1.PodPhase, exitCodes ...int32) {
	c.t.Helper()
	pod, err := client.For[*corev1.Pod](c).Get(context.Background(), "ns", name)
	if err != nil {
		return // deleted meanwhile
	}
	pod = pod.DeepCopy()
	if pod.Spec.NodeName = cmp.Or(pod.Spec.NodeName, podNode(pod), "node"); phase == corev1.PodPending {
		pod.Spec.NodeName = ""
	}
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	}
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	pod.Status.ContainerStatuses = nil
	for _, code := range exitCodes {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}},
		})
	}
	c.Put(pod)
}

// settle lets everything that is not a matter of seconds happen.
func (c *cluster) settle() {
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

// watch calls handle for every event of a scope from now on, until the test ends.
func (c *cluster) watch(handle func(client.Event), scope client.Scope) {
	go c.Subscribe(c.t.Context(), handle, scope)
	c.settle()
}

func (c *cluster) pods() []*corev1.Pod {
	c.t.Helper()
	pods, err := client.For[*corev1.Pod](c).List(context.Background(), "ns", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pods
}

func (c *cluster) podNames() string {
	var names []string
	for _, p := range c.pods() {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// events returns "Type Reason message" of what was recorded, in no order.
func (c *cluster) events() []string {
	c.t.Helper()
	list, err := client.For[*corev1.Event](c).List(context.Background(), "", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Message))
	}
	return out
}

func (c *cluster) wantEvent(want string) {
	c.t.Helper()
	if got := c.events(); !slices.Contains(got, want) {
		c.t.Errorf("no event %q among\n%s", want, strings.Join(got, "\n"))
	}
}

func create[T api.Object](c *cluster, obj T) T {
	c.t.Helper()
	made, err := client.For[T](c).Create(context.Background(), obj)
	if err != nil {
		c.t.Fatal(err)
	}
	c.settle()
	return made
}

func read[T api.Object](c *cluster, name string) T {
	c.t.Helper()
	obj, err := client.For[T](c).Get(context.Background(), "ns", name)
	if err != nil {
		c.t.Fatal(err)
	}
	return obj
}

// edit changes an object through the API.
func edit[T api.Object](c *cluster, name string, change func(T)) {
	c.t.Helper()
	obj := read[T](c, name).DeepCopyObject().(T)
	change(obj)
	if _, err := client.For[T](c).Update(context.Background(), obj); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func podTemplate(app, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func selectApp(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}
