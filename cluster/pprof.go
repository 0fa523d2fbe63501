package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
)

// profileEnv is the address, of loopback, on which a server offers Go's profiles; unset, it does not.
const profileEnv = "PROA_PPROF"

// startProfiles offers profiles to who wants to know where time and memory go.
func (s *server) startProfiles() error {
	address := os.Getenv(profileEnv)
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w", profileEnv, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return errors.Join(fmt.Errorf("%s=%s: profiles are for this machine only", profileEnv, address), l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	h := &http.Server{Handler: mux}
	s.group.start("profiles", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = h.Close() })
		defer stop()
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}
