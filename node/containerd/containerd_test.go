package containerd_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/containerd"
	"proa/node/cri"
	"proa/node/images"
	"proa/node/runtime"
)

const boxImage = "proa.local/box:1"

// TestContainer starts a daemon in a new directory, runs a container in it, takes the daemon over as the next process
// would, and looks for anything left behind at the end.
func TestContainer(t *testing.T) {
	box := requireMachine(t)
	dir, err := os.MkdirTemp("", "proa-ctrd-")
	if err != nil {
		t.Fatal(err)
	}
	config := containerd.Config{Dir: filepath.Join(dir, "c"), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := containerd.Stop(ctx, config, true); err != nil {
			t.Errorf("stop: %v", err)
		}
		assertNothingLeft(t, dir)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	daemon, err := containerd.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.ImportProgram(ctx, daemon.Socket(), boxImage, box); err != nil {
		t.Fatal(err)
	}
	rt, err := cri.Dial(ctx, daemon.Socket(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	events := make(chan runtime.Event, 100)
	go func() { _ = rt.Events(ctx, func(event runtime.Event) { events <- event }) }()

	parent := cgroupParent(t)
	sandboxConfig := &v1.PodSandboxConfig{
		Metadata:     &v1.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u1"},
		LogDirectory: filepath.Join(dir, "logs"),
		Linux: &v1.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: &v1.LinuxSandboxSecurityContext{
			NamespaceOptions: &v1.NamespaceOption{Network: v1.NamespaceMode_NODE, Pid: v1.NamespaceMode_CONTAINER},
		}},
	}
	sandbox, err := rt.RunPodSandbox(ctx, sandboxConfig, "")
	if err != nil {
		t.Fatal(err)
	}
	waiting := create(t, rt, sandbox, sandboxConfig, "waiting", "print", "hello", "wait", "exit", "7")
	if err := rt.StartContainer(ctx, waiting); err != nil {
		t.Fatal(err)
	}
	stdout, _, code, err := rt.ExecSync(ctx, waiting, []string{"/box", "print", "inside", "exit", "3"}, 5*time.Second)
	if err != nil || string(stdout) != "inside\n" || code != 3 {
		t.Errorf("exec: %q, code %d, %v; want inside, code 3", stdout, code, err)
	}

	again, err := containerd.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	if again.PID() != daemon.PID() {
		t.Errorf("second start has pid %d, not the running %d", again.PID(), daemon.PID())
	}

	drain(events)
	if err := rt.StopContainer(ctx, waiting, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, runtime.Event{Sandbox: sandbox, Container: waiting})
	status, err := rt.ContainerStatus(ctx, waiting)
	if err != nil || status.State != v1.ContainerState_CONTAINER_EXITED || status.ExitCode != 7 {
		t.Errorf("stopped container: %v, %v; want exited with 7", status, err)
	}
	log, err := os.ReadFile(filepath.Join(dir, "logs/waiting.log"))
	if err != nil || !strings.HasSuffix(string(log), " stdout F hello\n") {
		t.Errorf("log %q, %v", log, err)
	}

	// A daemon that is killed is started again and its containers live on.
	lasting := create(t, rt, sandbox, sandboxConfig, "lasting", "wait")
	if err := rt.StartContainer(ctx, lasting); err != nil {
		t.Fatal(err)
	}
	if err := again.Stop(ctx, false); err != nil {
		t.Fatal(err)
	}
	if _, err := containerd.Start(ctx, config); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, runtime.Event{Sandbox: sandbox})
	if status, err := rt.ContainerStatus(ctx, lasting); err != nil || status.State != v1.ContainerState_CONTAINER_RUNNING {
		t.Errorf("container after the daemon's restart: %v, %v; want running", status, err)
	}
	if err := rt.StopPodSandbox(ctx, sandbox); err != nil {
		t.Fatal(err)
	}
	awaitEvent(t, events, runtime.Event{Sandbox: sandbox})
	// The sandbox is left for the purge to remove.
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
	build := exec.Command("go", "build", "-o", box, "./testdata/box")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build box: %v: %s", err, output)
	}
	return box
}

func create(t *testing.T, rt *cri.Runtime, sandbox string, sandboxConfig *v1.PodSandboxConfig, name string, args ...string) string {
	t.Helper()
	id, err := rt.CreateContainer(t.Context(), sandbox, &v1.ContainerConfig{
		Metadata: &v1.ContainerMetadata{Name: name},
		Image:    &v1.ImageSpec{Image: boxImage},
		Command:  append([]string{"/box"}, args...),
		LogPath:  name + ".log",
	}, sandboxConfig)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// cgroupParent makes a cgroup of the test's own below which its containers are, and removes it at the end.
func cgroupParent(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("/proa-test-%d", os.Getpid())
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup" + name, "/sys/fs/cgroup/*" + name} {
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				_ = os.Remove(dir)
			}
		}
	})
	return name
}

func drain(events <-chan runtime.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

func awaitEvent(t *testing.T, events <-chan runtime.Event, want runtime.Event) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case event := <-events:
			if event == want {
				return
			}
		case <-timeout:
			t.Fatalf("no event %+v", want)
		}
	}
}

func assertNothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts below %s are left", dir)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, process := range processes {
		if data, err := os.ReadFile(process); err == nil && strings.Contains(string(data), dir) {
			t.Errorf("process is left: %s %q", process, data)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}
