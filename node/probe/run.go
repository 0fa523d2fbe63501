package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Result of a probe.
type Result string

// Results. Unknown is a probe that could not be carried out, and counts neither way.
const (
	Success Result = "success"
	Failure Result = "failure"
	Unknown Result = "unknown"
)

// Names that HTTP servers see, as the Kubernetes documentation gives them.
const (
	userAgentProbe = "kube-probe/1.31"
	userAgentHook  = "kube-lifecycle/1.31"
)

// Target is the container that is asked.
type Target struct {
	// PodIP is where to connect when the probe names no host.
	PodIP string
	// Exec runs a command in the container. It returns an error when the command could not be run, or not within the
	// timeout; then the error is context.DeadlineExceeded or has that gRPC code.
	Exec func(ctx context.Context, command []string, timeout time.Duration) (output []byte, code int32, err error)
	// ResolvePort finds a port by name; nil knows numbers only.
	ResolvePort func(intstr.IntOrString) (int, error)
}

// Run asks once, and returns the answer with what there is to tell about it.
func Run(ctx context.Context, p *corev1.Probe, t Target) (Result, string) {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	switch {
	case p.Exec != nil:
		return t.exec(ctx, p.Exec.Command, timeout)
	case p.HTTPGet != nil:
		return httpGet(ctx, p.HTTPGet, t, timeout, userAgentProbe)
	case p.TCPSocket != nil:
		port, err := t.port(p.TCPSocket.Port)
		if err != nil {
			return Unknown, err.Error()
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return result("", TCP(ctx, t.address(p.TCPSocket.Host, port)))
	case p.GRPC != nil:
		var service string
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return result("", GRPC(ctx, t.address("", int(p.GRPC.Port)), service, timeout))
	}
	return Unknown, "missing probe handler"
}

// HTTPGet does what a lifecycle hook of this kind asks for.
func HTTPGet(ctx context.Context, action *corev1.HTTPGetAction, t Target, timeout time.Duration) (Result, string) {
	return httpGet(ctx, action, t, timeout, userAgentHook)
}

func httpGet(ctx context.Context, action *corev1.HTTPGetAction, t Target, timeout time.Duration, agent string) (Result, string) {
	port, err := t.port(action.Port)
	if err != nil {
		return Unknown, err.Error()
	}
	target, err := url.Parse(action.Path)
	if err != nil {
		target = &url.URL{Path: action.Path}
	}
	target.Scheme = strings.ToLower(string(action.Scheme))
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	target.Host = t.address(action.Host, port)
	header, host := headers(action.HTTPHeaders, agent)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return result(HTTP(ctx, target, header, host))
}

// headers of a request. User-Agent and Accept have defaults, which an empty value takes away.
func headers(given []corev1.HTTPHeader, agent string) (header http.Header, host string) {
	header = http.Header{}
	for _, h := range given {
		if strings.EqualFold(h.Name, "Host") {
			host = h.Value
			continue
		}
		header.Add(h.Name, h.Value)
	}
	for name, value := range map[string]string{"User-Agent": agent, "Accept": "*/*"} {
		switch set, ok := header[name]; {
		case !ok:
			header.Set(name, value)
		case set[0] == "" && name == "Accept":
			header.Del(name)
		}
	}
	return header, host
}

func (t Target) exec(ctx context.Context, command []string, timeout time.Duration) (Result, string) {
	output, code, err := t.Exec(ctx, command, timeout)
	if len(output) > bodyLimit {
		output = output[:bodyLimit]
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("command %q timed out", strings.Join(command, " "))
	case err != nil:
		return Unknown, err.Error()
	case code != 0:
		return Failure, string(output)
	}
	return Success, string(output)
}

func (t Target) port(port intstr.IntOrString) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String && number == 0 {
		if t.ResolvePort == nil {
			return 0, fmt.Errorf("couldn't find port: %v", port.String())
		}
		var err error
		if number, err = t.ResolvePort(port); err != nil {
			return 0, err
		}
	}
	if number <= 0 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", number)
	}
	return number, nil
}

func (t Target) address(host string, port int) string {
	if host == "" {
		host = t.PodIP
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func result(output string, err error) (Result, string) {
	switch {
	case err == nil:
		return Success, output
	case errors.Is(err, context.Canceled):
		return Unknown, err.Error()
	}
	return Failure, err.Error()
}
