package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/client/events"
	"proa/node"
	"proa/node/containerd"
	"proa/node/cri"
	"proa/node/images"
)

const boxImage = "proa.local/box:1"

// TestMachine runs pods in a real containerd, on the network of the machine, and takes them over as the next process
// would.
func TestMachine(t *testing.T) {
	box := requireMachine(t)
	dir, err := os.MkdirTemp("", "proa-node-")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	daemonConfig := containerd.Config{Dir: filepath.Join(dir, "c"), Log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := containerd.Stop(ctx, daemonConfig, true); err != nil {
			t.Errorf("stop containerd: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	daemon, err := containerd.Start(ctx, daemonConfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.ImportPause(ctx, daemon.Socket()); err != nil {
		t.Fatal(err)
	}
	if err := images.ImportProgram(ctx, daemon.Socket(), boxImage, box); err != nil {
		t.Fatal(err)
	}
	rt, err := cri.Dial(ctx, daemon.Socket(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()

	fake := clientfake.New(builtin.Table())
	m := &machine{t: t, ctx: ctx, pods: client.For[*corev1.Pod](fake)}
	fake.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "from the map"}})
	root := fmt.Sprintf("/proa-node-test-%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(root) })
	start := func() (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		recorder := events.New(fake, log, "kubelet", nodeName)
		agent, err := node.New(node.Config{
			Name: nodeName, Client: fake, Runtime: rt, Log: log, Events: recorder, RootDir: filepath.Join(dir, "kubelet"),
			Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, CgroupRoot: root, Unprivileged: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := agent.Run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("agent ended: %v", err)
			}
		}()
		go func() { _ = recorder.Run(ctx) }()
		return func() { cancel(); <-done }
	}
	stop := start()

	once := hostPod("once", "print", "$(WORD)", "error", "last words", "exit", "3")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	c := &once.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "WORD", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Key: "k"}}}}
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	m.create(once)

	stay := hostPod("stay", "wait", "exit", "0")
	c = &stay.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/box", "print", "well"}}}, PeriodSeconds: 1, TimeoutSeconds: 5}
	stay.Spec.Volumes = []corev1.Volume{
		{Name: "map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}},
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "map", MountPath: "/map"}, {Name: "empty", MountPath: "/empty"}, {Name: "empty", MountPath: "/part", SubPath: "a/b"}}
	m.create(stay)

	ended := m.await("once", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	if s := ended.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 3 || s.Reason != "Error" || !strings.Contains(s.Message, "from the map\n") || !strings.Contains(s.Message, "last words\n") {
		t.Errorf("ended container is %v", ended.Status.ContainerStatuses[0].State)
	}
	running := m.await("stay", ready)
	id := running.Status.ContainerStatuses[0].ContainerID
	if running.Status.PodIP != "127.0.0.1" {
		t.Errorf("pod of the host's network has address %q", running.Status.PodIP)
	}

	stop()
	stop = start()
	time.Sleep(3 * time.Second) // whatever a restarted agent would do wrong, it does at once
	if s := m.await("stay", ready).Status.ContainerStatuses[0]; s.ContainerID != id || s.RestartCount != 0 {
		t.Errorf("after a restart of the agent the container is %s with %d restarts, want %s", s.ContainerID, s.RestartCount, id)
	}
	fake.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}, Data: map[string]string{"k": "changed"}})
	file := filepath.Join(dir, "kubelet/pods", string(running.UID), "volumes/kubernetes.io~configmap/map/k")
	for range 100 {
		if data, err := os.ReadFile(file); err == nil && string(data) == "changed" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "changed" {
		t.Errorf("file of the changed map has %q, %v", data, err)
	}

	grace := int64(5)
	for _, name := range []string{"once", "stay"} {
		if err := m.pods.Delete(ctx, "default", name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"once", "stay"} {
		m.gone(name)
	}
	for range 100 {
		if left, _ := os.ReadDir(filepath.Join(dir, "kubelet/pods")); len(left) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "kubelet/pods")); len(left) > 0 {
		t.Errorf("folders of pods are left: %v", left)
	}
	stop()
}

type machine struct {
	t    *testing.T
	ctx  context.Context
	pods client.Resource[*corev1.Pod]
}

func (m *machine) create(p *corev1.Pod) {
	m.t.Helper()
	if _, err := m.pods.Create(m.ctx, p); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) await(name string, good func(*corev1.Pod) bool) *corev1.Pod {
	m.t.Helper()
	for {
		p, err := m.pods.Get(m.ctx, "default", name)
		if err != nil {
			m.t.Fatal(err)
		}
		if good(p) {
			return p
		}
		select {
		case <-m.ctx.Done():
			m.t.Fatalf("pod %s stays %+v", name, p.Status)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (m *machine) gone(name string) {
	m.t.Helper()
	for {
		p, err := m.pods.Get(m.ctx, "default", name)
		if err != nil {
			return
		}
		select {
		case <-m.ctx.Done():
			m.t.Fatalf("pod %s is not gone: %+v", name, p.Status)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func hostPod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, HostNetwork: true, DNSPolicy: corev1.DNSDefault, RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "c", Image: boxImage, Command: append([]string{"/box"}, args...), ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log"}},
		},
	}
}

// requireMachine skips where containers cannot run and returns the program to run in them.
func requireMachine(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to run containers")
	}
	for _, program := range []string{"containerd", "runc", "go"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s in PATH", program)
		}
	}
	if testing.Short() {
		t.Skip("starts containerd, left out of -short")
	}
	box := filepath.Join(t.TempDir(), "box")
	build := exec.Command("go", "build", "-o", box, "./containerd/testdata/box")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build box: %v: %s", err, output)
	}
	return box
}

// removeCgroups takes away the empty cgroups that a test has made.
func removeCgroups(root string) {
	for _, pattern := range []string{"/sys/fs/cgroup" + root, "/sys/fs/cgroup/*" + root} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			for _, sub := range []string{"kubepods/burstable", "kubepods/besteffort", "kubepods", ""} {
				_ = os.Remove(filepath.Join(dir, sub))
			}
		}
	}
}
