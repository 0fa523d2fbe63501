package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/internal/netns"
)

// health answers load balancers that ask whether this node has endpoints of a Service, on the Service's
// healthCheckNodePort, and anybody who asks how the proxy is, on a port of its own. It is used by one goroutine.
type health struct {
	namespace string
	log       *slog.Logger
	status    *status
	servers   map[types.NamespacedName]*healthServer
	own       *http.Server
	wg        sync.WaitGroup
}

type healthServer struct {
	http  *http.Server
	port  int32
	local atomic.Int64
}

// set makes the answer for a Service what it should be.
func (h *health) set(ctx context.Context, name types.NamespacedName, s *corev1.Service, local int) {
	var port int32
	if s != nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		port = s.Spec.HealthCheckNodePort
	}
	server := h.servers[name]
	if server != nil && server.port != port {
		server.http.Close()
		delete(h.servers, name)
		server = nil
	}
	if port == 0 {
		return
	}
	if server == nil {
		var err error
		if server, err = h.start(ctx, name, port); err != nil {
			h.log.Error("health check port", "service", name, "port", port, "err", err)
			return
		}
		h.servers[name] = server
	}
	server.local.Store(int64(local))
}

func (h *health) start(ctx context.Context, name types.NamespacedName, port int32) (*healthServer, error) {
	server := &healthServer{port: port}
	var err error
	server.http, err = h.serve(ctx, port, server.handler(name, h.status))
	return server, err
}

// serve answers on a port until the server is closed.
func (h *health) serve(ctx context.Context, port int32, handler http.Handler) (*http.Server, error) {
	listener, err := netns.Listen(ctx, h.namespace, "tcp", net.JoinHostPort("", strconv.Itoa(int(port))))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, Handler: handler}
	h.wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("health check port", "port", port, "err", err)
		}
	})
	return server, nil
}

// serveStatus answers for the proxy itself.
func (h *health) serveStatus(ctx context.Context, port int32) {
	var err error
	if h.own, err = h.serve(ctx, port, h.status.handler()); err != nil {
		h.log.Error("health port of the proxy", "port", port, "err", err)
	}
}

func (s *healthServer) handler(name types.NamespacedName, proxy *status) http.Handler {
	type service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	type answer struct {
		Service             service `json:"service"`
		LocalEndpoints      int64   `json:"localEndpoints"`
		ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.local.Load()
		_, healthy, _ := proxy.get()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(n, 10))
		if n == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		json.NewEncoder(w).Encode(answer{service{name.Namespace, name.Name}, n, healthy})
	})
}

func (h *health) close() {
	for _, s := range h.servers {
		s.http.Close()
	}
	if h.own != nil {
		h.own.Close()
	}
	h.wg.Wait()
}
