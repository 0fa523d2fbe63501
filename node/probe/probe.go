// Package probe asks containers whether they are well: over HTTP, TCP and gRPC. Commands are run by the agent through
// the runtime. It knows nothing of thresholds and schedules.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// bodyLimit is how much of an answer is read.
const bodyLimit = 10 << 10

// Redirected is how the output of a probe begins that was sent to another host, and counted as good.
const Redirected = "Probe terminated redirects"

// HTTP gets a URL. Answers from 200 to 399 are good; a redirect to another host is good too, and not followed: the output
// then says so.
func HTTP(ctx context.Context, target *url.URL, header http.Header, host string) (output string, err error) {
	// The deadline is the client's, whose error says what the probe was waiting for.
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), time.Nanosecond)
		inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		outer := ctx
		defer context.AfterFunc(outer, func() {
			if !errors.Is(outer.Err(), context.DeadlineExceeded) {
				cancel()
			}
		})()
		ctx = inner
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return "", err
	}
	request.Header = header
	if host != "" {
		request.Host = host
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as documented for probes of scheme HTTPS
		DisableKeepAlives: true,
		// Answers are shown as they come.
		DisableCompression: true,
		Proxy:              nil,
		DialContext:        (&net.Dialer{}).DialContext,
	}
	defer transport.CloseIdleConnections()
	doer := &http.Client{Timeout: timeout, Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != target.Hostname() {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
	response, err := doer.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, bodyLimit)) // what came is shown, the code decides
	if response.StatusCode >= http.StatusMultipleChoices && response.StatusCode < http.StatusBadRequest {
		return Redirected + ", Response body: " + string(body), nil
	}
	if response.StatusCode >= http.StatusOK && response.StatusCode < http.StatusMultipleChoices {
		return string(body), nil
	}
	return string(body), fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
}

// TCP opens a connection.
func TCP(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// GRPC asks the health service of a server.
func GRPC(ctx context.Context, address, service string, timeout time.Duration) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent("kube-probe/1.31"))
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		switch status.Code(err) {
		case codes.Unimplemented:
			return errors.New("error: this server does not implement the grpc health protocol (grpc.health.v1.Health)")
		case codes.DeadlineExceeded:
			return fmt.Errorf("timeout: failed to connect service %q within %v: context deadline exceeded", address, timeout)
		}
		return fmt.Errorf("error: health rpc probe failed: %w", err)
	}
	if answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy (responded with %q)", answer.GetStatus().String())
	}
	return nil
}
