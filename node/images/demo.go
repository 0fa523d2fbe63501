package images

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// ServeDemo is the demo image's program: a web server that tells which pod answered, until ctx ends.
func ServeDemo(ctx context.Context, listener net.Listener) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the pod's name: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "Ahoy from %s\n%s %s as %s from %s\n", host, r.Method, r.URL.Path, r.Host, r.RemoteAddr)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the demo page: %w", err)
	}
	return nil
}
