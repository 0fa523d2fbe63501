package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"proa/node/probe"
)

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "fine") })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "broken", http.StatusInternalServerError) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/broken", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://0.0.0.0/broken", http.StatusFound)
	})
	mux.HandleFunc("/agent", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", r.Host, r.UserAgent(), r.Header.Get("X-Custom"), r.URL.RawQuery)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 20<<10)) })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()

	tests := []struct {
		name, path string
		secure     bool
		header     http.Header
		host       string
		output     string
		err        string
	}{
		{name: "good", path: "/ok", output: "fine"},
		{name: "https with any certificate", path: "/ok", secure: true, output: "fine"},
		{name: "bad status", path: "/broken", output: "broken", err: "HTTP probe failed with statuscode: 500"},
		{name: "redirect to the same host is followed", path: "/here", output: "broken", err: "HTTP probe failed with statuscode: 500"},
		{name: "redirect to another host is good", path: "/away", output: probe.Redirected + ", Response body: "},
		{name: "headers", path: "/agent?a=b", output: "example.org mine yes a=b",
			header: http.Header{"User-Agent": {"mine"}, "X-Custom": {"yes"}}, host: "example.org"},
		{name: "timeout", path: "/slow", err: "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := plain
			if test.secure {
				server = secure
			}
			target, err := url.Parse(server.URL + test.path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			output, err := probe.HTTP(ctx, target, test.header, test.host)
			if !strings.HasPrefix(output, test.output) {
				t.Errorf("output is %q, want %q", output, test.output)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.HasSuffix(err.Error(), test.err) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
		})
	}
	large, err := url.Parse(plain.URL + "/large")
	if err != nil {
		t.Fatal(err)
	}
	if output, _ := probe.HTTP(t.Context(), large, nil, ""); len(output) != 10<<10 {
		t.Errorf("output of %d bytes, want 10 KiB", len(output))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := probe.HTTP(ctx, large, nil, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled probe ends with %v", err)
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := probe.TCP(t.Context(), address); err != nil {
		t.Errorf("open port: %v", err)
	}
	listener.Close()
	if err := probe.TCP(t.Context(), address); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("closed port: %v", err)
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
	ask := func(name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return probe.GRPC(ctx, listener.Addr().String(), name, 500*time.Millisecond)
	}
	if err := ask(""); err != nil {
		t.Errorf("serving: %v", err)
	}
	service.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if err := ask(""); err == nil || err.Error() != `service unhealthy (responded with "NOT_SERVING")` {
		t.Errorf("not serving: %v", err)
	}
	if err := ask("other"); err == nil || !strings.Contains(err.Error(), "unknown service") {
		t.Errorf("unknown service: %v", err)
	}
	server.Stop()
	if err := ask(""); err == nil || !strings.Contains(err.Error(), "timeout: failed to connect service") {
		t.Errorf("no server: %v", err)
	}
}
