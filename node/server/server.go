// Package server is the node's HTTPS API that the API server dials: logs, exec, attach and port-forward of this node's
// containers, and the node's statistics and metrics. It terminates the streaming protocols of clients (SPDY and
// WebSocket) and passes them on to the runtime's streaming server. It also rotates container logs (Rotator).
package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/node/runtime"
	"proa/node/stats"
)

// Pods is what the server needs of the node agent: the pods bound to this node, as they are in the API.
type Pods interface {
	Pods() iter.Seq[*corev1.Pod]
	Pod(namespace, name string) (*corev1.Pod, bool)
}

// Config of the server. Runtime, Pods, Log and one of Addr and Listener are required.
type Config struct {
	// Addr to listen on when there is no Listener, such as "192.0.2.1:10250".
	Addr     string
	Listener net.Listener
	// TLS has the serving certificate and, in ClientCAs, the authority of client certificates; how they are asked for is
	// set here. Without TLS the server speaks plain HTTP and lets everybody in, for tests.
	TLS *tls.Config
	// Clients are names (CN) of client certificates that are let in besides the organization system:masters.
	Clients []string
	// Authenticate decides on requests without a client certificate, such as those with a bearer token; default: none.
	Authenticate func(*http.Request) error

	Runtime runtime.Runtime
	Pods    Pods
	Log     *slog.Logger
	// Stats answers /stats/summary and the metrics of pods; without it these are not found.
	Stats *stats.Collector
	// Metrics serves /metrics besides the server's own numbers; optional.
	Metrics http.Handler
	// Configz is served at /configz, by component name; optional.
	Configz map[string]any
	// LogDir is what /logs/ shows; default /var/log.
	LogDir string
}

// Server is the node's HTTPS API. Use New.
type Server struct {
	Config
	mux *http.ServeMux
}

// New checks the configuration.
func New(config Config) (*Server, error) {
	if config.Runtime == nil || config.Pods == nil || config.Log == nil {
		return nil, errors.New("node server needs a runtime, pods and a log")
	}
	if config.Addr == "" && config.Listener == nil {
		return nil, errors.New("node server needs an address or a listener")
	}
	if config.LogDir == "" {
		config.LogDir = "/var/log"
	}
	s := &Server{Config: config, mux: http.NewServeMux()}
	s.routes()
	return s, nil
}

func (s *Server) routes() {
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	s.mux.HandleFunc("GET /pods", s.pods)
	s.mux.HandleFunc("GET /pods/", s.pods)
	s.mux.HandleFunc("GET /runningpods/", s.runningPods)
	s.mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Configz) })
	s.mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.FileServer(http.Dir(s.LogDir))))
	s.mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)

	s.mux.HandleFunc("/exec/{namespace}/{pod}/{container}", s.exec)
	s.mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", s.exec)
	s.mux.HandleFunc("/attach/{namespace}/{pod}/{container}", s.attach)
	s.mux.HandleFunc("/attach/{namespace}/{pod}/{uid}/{container}", s.attach)
	s.mux.HandleFunc("/portForward/{namespace}/{pod}", s.portForward)
	s.mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", s.portForward)
	s.mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.run)
	s.mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", s.run)

	s.mux.HandleFunc("GET /stats/summary", s.summary)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /metrics/resource", s.resourceMetrics)
	s.mux.HandleFunc("GET /metrics/cadvisor", s.cadvisorMetrics)
	s.mux.HandleFunc("GET /metrics/probes", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", metricsType) })
}

// Handler is the API without its listener, with the check of who calls.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.authenticate(r); err != nil {
			s.Log.Info("request to node refused", "path", r.URL.Path, "from", r.RemoteAddr, "err", err)
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		s.mux.ServeHTTP(w, r)
	})
}

// authenticate lets in who has a certificate of the right name, and whom Authenticate accepts. Health is open to all.
func (s *Server) authenticate(r *http.Request) error {
	if s.TLS == nil || r.URL.Path == "/healthz" {
		return nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		if slices.Contains(subject.Organization, "system:masters") || slices.Contains(s.Clients, subject.CommonName) {
			return nil
		}
		return fmt.Errorf("certificate of %q is not let in", subject.CommonName)
	}
	if s.Authenticate != nil {
		return s.Authenticate(r)
	}
	return errors.New("no client certificate")
}

// Run serves until ctx ends. Streams that are open then are cut.
func (s *Server) Run(ctx context.Context) error {
	listener := s.Listener
	if listener == nil {
		var err error
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.Addr); err != nil {
			return fmt.Errorf("listen for the node's api: %w", err)
		}
	}
	if s.TLS != nil {
		config := s.TLS.Clone()
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		config.ClientAuth = tls.RequestClientCert
		if config.ClientCAs != nil {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
		// No HTTP/2: its streams cannot be upgraded, and a client that has negotiated it would try.
		config.NextProtos = []string{"http/1.1"}
		listener = tls.NewListener(listener, config)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	s.Log.Info("node api serves", "addr", listener.Addr().String())
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve the node's api: %w", err)
	}
	return context.Cause(ctx)
}

func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for pod := range s.Pods.Pods() {
		list.Items = append(list.Items, *pod)
	}
	writeJSON(w, list)
}

// runningPods shows what the runtime runs, whatever the API says.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	sandboxes, err := s.Runtime.ListPodSandbox(r.Context(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	containers, err := s.Runtime.ListContainers(r.Context(), running)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for _, sandbox := range sandboxes {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: sandbox.GetMetadata().GetName(), Namespace: sandbox.GetMetadata().GetNamespace(), UID: uid(sandbox.GetMetadata().GetUid()),
		}}
		for _, container := range containers {
			if container.PodSandboxId == sandbox.Id {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container.GetMetadata().GetName(), Image: container.GetImage().GetImage()})
			}
		}
		if len(pod.Spec.Containers) > 0 {
			list.Items = append(list.Items, pod)
		}
	}
	writeJSON(w, list)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(data) // the client is gone if this fails
}

func isUpgrade(r *http.Request, protocol string) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), protocol)
}
