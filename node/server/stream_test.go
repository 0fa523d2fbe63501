package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"

	"proa/node/containerd"
	"proa/node/cri"
	"proa/node/images"
	"proa/node/server"
	"proa/node/stats"
)

const boxImage = "proa.local/box:1"

// onePod is a node with one pod.
type onePod struct{ pod *corev1.Pod }

func (p onePod) Pods() iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) { yield(p.pod) }
}

func (p onePod) Pod(namespace, name string) (*corev1.Pod, bool) {
	return p.pod, namespace == p.pod.Namespace && name == p.pod.Name
}

// TestStreams runs a container and talks to it through the server as clients do.
func TestStreams(t *testing.T) {
	node, port := startNode(t)

	executors := map[string]func(*url.URL) (remotecommand.Executor, error){
		"spdy": func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, u)
		},
		"websocket": func(u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(&rest.Config{}, http.MethodGet, u.String())
		},
	}
	for name, open := range executors {
		t.Run("exec over "+name, func(t *testing.T) {
			run := func(stdin string, command ...string) (string, string, error) {
				query := url.Values{"command": command, "output": {"1"}, "error": {"1"}, "input": {"1"}}
				target := node.JoinPath("exec/default/p/c")
				target.RawQuery = query.Encode()
				executor, err := open(target)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				var stdout, stderr bytes.Buffer
				err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr})
				return stdout.String(), stderr.String(), err
			}
			long := strings.Repeat("0123456789abcdef", 20000)
			if stdout, _, err := run(long, "/box", "cat"); err != nil || stdout != long {
				t.Errorf("cat: %d bytes of %d, %v", len(stdout), len(long), err)
			}
			stdout, stderr, err := run("", "/box", "print", "out", "error", "err", "exit", "42")
			exit, ok := errors.AsType[clientexec.CodeExitError](err)
			if !ok || exit.Code != 42 || stdout != "out\n" || stderr != "err\n" {
				t.Errorf("exit: %q, %q, %v; want out, err, code 42", stdout, stderr, err)
			}
			if _, _, err := run("", "/nothing"); err == nil {
				t.Error("a program that does not exist runs")
			}
		})
	}
	t.Run("exec over websocket in base64", func(t *testing.T) {
		target := node.JoinPath("exec/default/p/c")
		target.Scheme = "ws"
		target.RawQuery = "command=/box&command=print&command=hi&stdout=true"
		dialer := websocket.Dialer{Subprotocols: []string{"v4.base64.channel.k8s.io"}}
		conn, _, err := dialer.DialContext(t.Context(), target.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var got []string
		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				break
			}
			got = append(got, string(message))
		}
		if len(got) != 3 || got[0] != "1" || got[1] != "1aGkK" || !strings.HasPrefix(got[2], "3") {
			t.Errorf("messages %q, want an empty one, hi and a status", got)
		}
	})
	t.Run("exec refused", func(t *testing.T) {
		for path, want := range map[string]string{
			"exec/default/p/other?command=x&output=1": "container not found (\"other\")\n",
			"exec/default/q/c?command=x&output=1":     "pod does not exist\n",
			"exec/default/p/c?command=x":              "you must specify at least 1 of stdin, stdout, stderr\n",
		} {
			if got := get(t, node, path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		}
	})
	t.Run("logs", func(t *testing.T) {
		if got := get(t, node, "containerLogs/default/p/c"); got != "hello\n" {
			t.Errorf("log %q", got)
		}
		if got, want := get(t, node, "containerLogs/default/p/c?previous=true"), "previous terminated container \"c\" in pod \"p\" not found\n"; got != want {
			t.Errorf("previous log %q, want %q", got, want)
		}
	})

	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	target := node.JoinPath("portForward/default/p")
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, dialer := range map[string]httpstream.Dialer{
		"spdy":   spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target),
		"tunnel": tunnel,
	} {
		t.Run("port-forward over "+name, func(t *testing.T) { forward(t, dialer, port) })
	}
	t.Run("stats", func(t *testing.T) {
		var summary stats.Summary
		if err := json.Unmarshal([]byte(get(t, node, "stats/summary")), &summary); err != nil {
			t.Fatal(err)
		}
		if len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 1 || summary.Pods[0].Containers[0].Memory == nil || *summary.Pods[0].Containers[0].Memory.WorkingSetBytes == 0 {
			t.Errorf("summary of pods %+v, want one container with memory", summary.Pods)
		}
		if n := summary.Node; n.CPU == nil || n.Memory == nil || n.Fs == nil || *n.Memory.WorkingSetBytes == 0 {
			t.Errorf("summary of node %+v", n)
		}
		metrics := get(t, node, "metrics/resource")
		if !strings.Contains(metrics, `container_memory_working_set_bytes{container="c",namespace="default",pod="p"} `) {
			t.Errorf("resource metrics:\n%s", metrics)
		}
	})
}

// forward forwards a free port to the echoing one and to one where nobody listens.
func forward(t *testing.T, dialer httpstream.Dialer, port int) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	var errOut bytes.Buffer
	forwarder, err := portforward.NewForStreaming(dialer, []string{"0:" + strconv.Itoa(port), "0:1"}, stop, ready, io.Discard, &errOut)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		text := strings.Repeat(fmt.Sprint(i), 100000)
		go func() {
			_, _ = io.WriteString(conn, text)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != text {
			t.Errorf("echo %d: %d bytes of %d, %v", i, len(got), len(text), err)
		}
		_ = conn.Close()
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1].Local))
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if got, _ := io.ReadAll(conn); len(got) > 0 {
			t.Errorf("a closed port answers %q", got)
		}
		_ = conn.Close()
	}
	close(stop)
	<-done
}

// startNode starts containerd, a pod whose container echoes on the returned port, and the server.
func startNode(t *testing.T) (*url.URL, int) {
	t.Helper()
	box := requireMachine(t)
	dir, err := os.MkdirTemp("", "proa-srv-")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	config := containerd.Config{Dir: filepath.Join(dir, "c"), Log: log}
	parent := fmt.Sprintf("/proa-test-%d", os.Getpid())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(containerd.Stop(ctx, config, true), os.RemoveAll(dir)); err != nil {
			t.Errorf("clean up: %v", err)
		}
		for _, pattern := range []string{"/sys/fs/cgroup" + parent, "/sys/fs/cgroup/*" + parent} {
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				_ = os.Remove(dir)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	daemon, err := containerd.Start(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.ImportProgram(ctx, daemon.Socket(), boxImage, box); err != nil {
		t.Fatal(err)
	}
	rt, err := cri.Dial(ctx, daemon.Socket(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })

	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	_ = free.Close()
	labels := map[string]string{"io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u1", "io.kubernetes.container.name": "c"}
	sandboxConfig := &v1.PodSandboxConfig{
		Metadata: &v1.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u1"}, Labels: labels,
		LogDirectory: filepath.Join(dir, "logs"),
		Linux: &v1.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: &v1.LinuxSandboxSecurityContext{
			NamespaceOptions: &v1.NamespaceOption{Network: v1.NamespaceMode_NODE},
		}},
	}
	sandbox, err := rt.RunPodSandbox(ctx, sandboxConfig, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.CreateContainer(ctx, sandbox, &v1.ContainerConfig{
		Metadata: &v1.ContainerMetadata{Name: "c"}, Image: &v1.ImageSpec{Image: boxImage}, Labels: labels, LogPath: "0.log",
		Command: []string{"/box", "print", "hello", "listen", fmt.Sprintf("127.0.0.1:%d", port), "wait"},
	}, sandboxConfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(ctx, id); err != nil {
		t.Fatal(err)
	}

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	api, err := server.New(server.Config{
		Addr: "unused", Runtime: rt, Pods: onePod{pod}, Log: log,
		Stats: stats.New(stats.Config{NodeName: "n", Runtime: rt, Log: log}),
	})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(api.Handler())
	t.Cleanup(listener.Close)
	address, err := url.Parse(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, port
}

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
	build := exec.Command("go", "build", "-o", box, "../containerd/testdata/box")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build box: %v: %s", err, output)
	}
	return box
}

func get(t *testing.T, node *url.URL, path string) string {
	t.Helper()
	response, err := http.Get(node.String() + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
