package node_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/client/events"
	"proa/node"
	"proa/node/simulated"
)

const nodeName = "n1"

// world is an API, a simulated runtime and a node between them, all in one bubble of time.
type world struct {
	t       *testing.T
	api     *clientfake.Client
	pods    client.Resource[*corev1.Pod]
	runtime *recorded
	agent   *node.Node
	// stop ends the agent as a restart of its process does: containers go on.
	stop func()
}

// inWorld runs a test in a world whose agent is running, without a disk.
func inWorld(t *testing.T, config simulated.Config, test func(w *world)) {
	t.Helper()
	inWorldWith(t, config, nil, test)
}

// inWorldWith is inWorld with changes to the agent's configuration.
func inWorldWith(t *testing.T, config simulated.Config, change func(*node.Config), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}
		w := &world{t: t, api: clientfake.New(builtin.Table())}
		w.pods = client.For[*corev1.Pod](w.api)
		w.runtime = &recorded{Runtime: simulated.New(config), made: map[string][]*cri.ContainerConfig{}, boxes: map[string][]*cri.PodSandboxConfig{}}
		w.start(change)
		t.Cleanup(func() { w.stop() })
		w.after(0)
		test(w)
	})
}

// start runs an agent; change may be nil.
func (w *world) start(change func(*node.Config)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	recorder := events.New(w.api, slog.New(slog.DiscardHandler), "kubelet", nodeName)
	config := node.Config{
		Name: nodeName, Client: w.api, Runtime: w.runtime, Log: slog.New(slog.DiscardHandler), Events: recorder,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, ServerPort: 10250,
		ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
		},
	}
	if change != nil {
		change(&config)
	}
	agent, err := node.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.agent = agent
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := agent.Run(ctx); err != nil && ctx.Err() == nil {
			w.t.Errorf("agent ended: %v", err)
		}
	})
	wg.Go(func() { _ = recorder.Run(ctx) })
	w.stop = func() {
		cancel()
		wg.Wait()
		w.stop = func() {}
	}
}

// after lets time pass until everything has come to rest.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	// Status writes may be held back for a moment to be joined.
	synctest.Wait()
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

// run creates a pod bound to the node and lets it come to rest.
func (w *world) run(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	w.create(p)
	w.after(0)
	return w.pod(p.Name)
}

func (w *world) create(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	made, err := w.pods.Create(w.t.Context(), p)
	if err != nil {
		w.t.Fatalf("create pod: %v", err)
	}
	return made
}

// pod reads a pod, which must be there.
func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.pods.Get(w.t.Context(), "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) gone(name string) bool {
	_, err := w.pods.Get(w.t.Context(), "default", name)
	return err != nil
}

func (w *world) delete(name string, grace int64) {
	w.t.Helper()
	if err := w.pods.Delete(w.t.Context(), "default", name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		w.t.Fatal(err)
	}
}

// container is the status of a container of any sort.
func (w *world) container(pod, name string) corev1.ContainerStatus {
	w.t.Helper()
	status := w.pod(pod).Status
	for _, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == name {
				return s
			}
		}
	}
	w.t.Fatalf("pod %s has no status of container %s", pod, name)
	return corev1.ContainerStatus{}
}

// running finds the running containers of a name in the runtime.
func (w *world) running(name string) []*cri.Container {
	w.t.Helper()
	list, err := w.runtime.ListContainers(w.t.Context(), &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}, LabelSelector: map[string]string{"io.kubernetes.container.name": name},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// exit ends the one running container of a name.
func (w *world) exit(name string, code int32) {
	w.t.Helper()
	list := w.running(name)
	if len(list) != 1 {
		w.t.Fatalf("%d containers %s are running, want 1", len(list), name)
	}
	if err := w.runtime.Exit(list[0].Id, code); err != nil {
		w.t.Fatal(err)
	}
	w.after(0)
}

// events of a reason, as "path message" in order of their first occurrence.
func (w *world) events(reason string) []string {
	w.t.Helper()
	list, err := client.For[*corev1.Event](w.api).List(w.t.Context(), "", metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	slices.SortStableFunc(list, func(a, b *corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	var out []string
	for _, e := range list {
		if e.Reason == reason {
			out = append(out, strings.TrimSpace(e.InvolvedObject.FieldPath+" "+e.Message))
		}
	}
	return out
}

func (w *world) wantEvent(reason, text string) {
	w.t.Helper()
	if have := w.events(reason); !slices.Contains(have, text) {
		w.t.Errorf("events of reason %s are %q, want one %q", reason, have, text)
	}
}

func (w *world) wantPhase(pod string, want corev1.PodPhase) {
	w.t.Helper()
	if have := w.pod(pod).Status.Phase; have != want {
		w.t.Errorf("phase of %s is %s, want %s", pod, have, want)
	}
}

func (w *world) wantCondition(pod string, kind corev1.PodConditionType, want corev1.ConditionStatus, reason string) {
	w.t.Helper()
	for _, c := range w.pod(pod).Status.Conditions {
		if c.Type == kind {
			if c.Status != want || c.Reason != reason {
				w.t.Errorf("condition %s of %s is %s, reason %q (%s), want %s, reason %q", kind, pod, c.Status, c.Reason, c.Message, want, reason)
			}
			return
		}
	}
	w.t.Errorf("pod %s has no condition %s", pod, kind)
}

func (w *world) wantWaiting(pod, container, reason, message string) {
	w.t.Helper()
	s := w.container(pod, container)
	if s.State.Waiting == nil || s.State.Waiting.Reason != reason || s.State.Waiting.Message != message {
		w.t.Errorf("container %s of %s is %+v, want waiting for %s: %s", container, pod, s.State, reason, message)
	}
}

// newPod returns a pod of one container "c" on the node.
func newPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			NodeName:   nodeName,
			Containers: []corev1.Container{{Name: "c", Image: "registry.k8s.io/pause:3.10", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func annotate(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
}

func restartPolicy(policy corev1.RestartPolicy) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

func image(name string) corev1.Container {
	return corev1.Container{Name: name, Image: "registry.k8s.io/" + name + ":1", ImagePullPolicy: corev1.PullIfNotPresent}
}

// initContainer adds an init container.
func initContainer(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.InitContainers = append(p.Spec.InitContainers, image(name)) }
}

// sidecar adds a restartable init container.
func sidecar(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := image(name)
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// container adds a container proper.
func container(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, image(name)) }
}

// first changes the pod's first container.
func first(change func(*corev1.Container)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
}

// execProbe is a probe every second that one failure turns.
func execProbe(command string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

// recorded is a simulated runtime that remembers what it was asked to make and to stop.
type recorded struct {
	*simulated.Runtime

	mu    sync.Mutex
	made  map[string][]*cri.ContainerConfig  // by container
	boxes map[string][]*cri.PodSandboxConfig // by pod
	stops []stop
}

type stop struct {
	name  string
	grace time.Duration
	at    time.Time
}

func (r *recorded) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	name := config.GetMetadata().GetName()
	r.boxes[name] = append(r.boxes[name], config)
	r.mu.Unlock()
	return r.Runtime.RunPodSandbox(ctx, config, handler)
}

func (r *recorded) CreateContainer(ctx context.Context, sandbox string, config *cri.ContainerConfig, sandboxConfig *cri.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	name := config.GetMetadata().GetName()
	r.made[name] = append(r.made[name], config)
	r.mu.Unlock()
	return r.Runtime.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

func (r *recorded) StopContainer(ctx context.Context, id string, timeout time.Duration) error {
	if status, err := r.ContainerStatus(ctx, id); err == nil {
		r.mu.Lock()
		r.stops = append(r.stops, stop{status.GetMetadata().GetName(), timeout, time.Now()})
		r.mu.Unlock()
	}
	return r.Runtime.StopContainer(ctx, id, timeout)
}

// configs of the containers of a name, oldest first.
func (r *recorded) configs(name string) []*cri.ContainerConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.made[name])
}

func (r *recorded) stopped() []stop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.stops)
}
