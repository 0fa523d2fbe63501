package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/node/probe"
)

func TestHTTPGet(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/broken", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://0.0.0.0/broken", http.StatusFound)
	})
	mux.HandleFunc("/agent", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " ", r.UserAgent(), " ", r.Header.Get("Accept"), " ", r.Header.Get("X-Custom"), " ", r.URL.RawQuery)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 20<<10)) })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()

	tests := []struct {
		name, path string
		secure     bool
		headers    []corev1.HTTPHeader
		want       probe.Result
		output     string
	}{
		{name: "good", path: "/ok", want: probe.Success, output: "fine"},
		{name: "https with any certificate", path: "/ok", secure: true, want: probe.Success, output: "fine"},
		{name: "bad status", path: "/broken", want: probe.Failure, output: "HTTP probe failed with statuscode: 500"},
		{name: "redirect to the same host is followed", path: "/here", want: probe.Failure, output: "HTTP probe failed with statuscode: 500"},
		{name: "redirect to another host is good", path: "/away", want: probe.Success, output: "Probe terminated redirects"},
		{name: "headers", path: "/agent?a=b", want: probe.Success, output: "example.org kube-probe/1.31 */* yes a=b",
			headers: []corev1.HTTPHeader{{Name: "host", Value: "example.org"}, {Name: "X-Custom", Value: "yes"}}},
		{name: "own agent", path: "/agent", want: probe.Success, output: " mine */* ",
			headers: []corev1.HTTPHeader{{Name: "User-Agent", Value: "mine"}}},
		{name: "timeout", path: "/slow", want: probe.Failure, output: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server, scheme := plain, corev1.URISchemeHTTP
			if test.secure {
				server, scheme = secure, corev1.URISchemeHTTPS
			}
			ip, port := address(t, server.Listener)
			p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: test.path, Port: intstr.FromString("web"), Scheme: scheme, HTTPHeaders: test.headers,
			}}}
			got, output := probe.Run(t.Context(), p, probe.Target{PodIP: ip, ResolvePort: func(intstr.IntOrString) (int, error) { return port, nil }})
			if got != test.want || !strings.Contains(output, test.output) {
				t.Errorf("got %s %q, want %s %q", got, output, test.want, test.output)
			}
		})
	}
	ip, port := address(t, plain.Listener)
	large := &corev1.HTTPGetAction{Path: "/large", Port: intstr.FromInt(port)}
	if _, output := probe.HTTPGet(t.Context(), large, probe.Target{PodIP: ip}, time.Second); len(output) != 10<<10 {
		t.Errorf("output of %d bytes, want 10 KiB", len(output))
	}
}

func TestExec(t *testing.T) {
	tests := []struct {
		name   string
		output string
		code   int32
		err    error
		want   probe.Result
		text   string
	}{
		{name: "good", output: "x", want: probe.Success, text: "x"},
		{name: "bad", output: "no such file", code: 1, want: probe.Failure, text: "no such file"},
		{name: "too slow", err: context.DeadlineExceeded, want: probe.Failure, text: `command "cat /x" timed out`},
		{name: "not run", err: errors.New("no container"), want: probe.Unknown, text: "no container"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := &corev1.Probe{TimeoutSeconds: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"cat", "/x"}}}}
			target := probe.Target{Exec: func(_ context.Context, _ []string, timeout time.Duration) ([]byte, int32, error) {
				if timeout != 3*time.Second {
					t.Errorf("timeout is %v", timeout)
				}
				return []byte(test.output), test.code, test.err
			}}
			if got, text := probe.Run(t.Context(), p, target); got != test.want || text != test.text {
				t.Errorf("got %s %q, want %s %q", got, text, test.want, test.text)
			}
		})
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ip, port := address(t, listener)
	p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}}
	if got, text := probe.Run(t.Context(), p, probe.Target{PodIP: ip}); got != probe.Success {
		t.Errorf("open port: %s %q", got, text)
	}
	listener.Close()
	got, text := probe.Run(t.Context(), p, probe.Target{PodIP: ip})
	if got != probe.Failure || !strings.Contains(text, "connection refused") {
		t.Errorf("closed port: %s %q", got, text)
	}
	p.TCPSocket.Port = intstr.FromString("unknown")
	if got, _ := probe.Run(t.Context(), p, probe.Target{PodIP: ip}); got != probe.Unknown {
		t.Errorf("unknown port: %s", got)
	}
}

func TestGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := health.NewServer()
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, service)
	go server.Serve(listener)
	defer server.Stop()
	ip, port := address(t, listener)
	run := func(name string) (probe.Result, string) {
		return probe.Run(t.Context(), &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port), Service: &name}}}, probe.Target{PodIP: ip})
	}
	if got, text := run(""); got != probe.Success {
		t.Errorf("serving: %s %q", got, text)
	}
	service.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if got, text := run(""); got != probe.Failure || text != `service unhealthy (responded with "NOT_SERVING")` {
		t.Errorf("not serving: %s %q", got, text)
	}
	if got, text := run("other"); got != probe.Failure || !strings.Contains(text, "unknown service") {
		t.Errorf("unknown service: %s %q", got, text)
	}
}

func address(t *testing.T, l net.Listener) (string, int) {
	t.Helper()
	a := l.Addr().(*net.TCPAddr)
	return a.IP.String(), a.Port
}
