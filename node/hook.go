package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/node/probe"
)

// runHook runs a lifecycle handler to its end and returns what it said.
func (n *Node) runHook(ctx context.Context, api *corev1.Pod, c *corev1.Container, id string, h *corev1.LifecycleHandler, ips []string) (string, error) {
	switch {
	case h.Exec != nil:
		stdout, stderr, code, err := n.Runtime.ExecSync(ctx, id, h.Exec.Command, 0)
		if err == nil && code != 0 {
			err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.Exec.Command, " "), code, stderr)
		}
		return string(stdout) + string(stderr), err
	case h.HTTPGet != nil && n.Hollow:
		return "", nil
	case h.HTTPGet != nil:
		target, header, host, err := httpTarget(c, h.HTTPGet, ips)
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		header.Set("User-Agent", "kube-lifecycle/1.31")
		text, err := probe.HTTP(ctx, target, header, host)
		if err != nil && target.Scheme == "https" && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			// Handlers of releases that ignored the scheme keep working, as upstream promises.
			target.Scheme = "http"
			text, err = probe.HTTP(ctx, target, header, host)
		}
		return text, err
	case h.Sleep != nil:
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
			return "", nil
		}
	case h.TCPSocket != nil:
		return "", nil // documented as ignored
	}
	return "", fmt.Errorf("invalid handler: %v", h)
}

// httpTarget works out what an HTTP action asks for.
func httpTarget(c *corev1.Container, a *corev1.HTTPGetAction, ips []string) (*url.URL, http.Header, string, error) {
	port, err := portOf(c, a.Port)
	if err != nil {
		return nil, nil, "", err
	}
	host := a.Host
	if host == "" {
		if len(ips) == 0 {
			return nil, nil, "", fmt.Errorf("pod has no address")
		}
		host = ips[0]
	}
	target, err := url.Parse(a.Path)
	if err != nil {
		target = &url.URL{Path: a.Path}
	}
	target.Scheme = "http"
	if a.Scheme == corev1.URISchemeHTTPS {
		target.Scheme = "https"
	}
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	if !strings.HasPrefix(target.Path, "/") {
		target.Path = "/" + target.Path
	}
	header := http.Header{}
	var hostHeader string
	for _, h := range a.HTTPHeaders {
		header.Add(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			hostHeader = h.Value
		}
	}
	if _, ok := header["Accept"]; !ok {
		header.Set("Accept", "*/*")
	} else if header.Get("Accept") == "" {
		header.Del("Accept")
	}
	return target, header, hostHeader, nil
}

// portOf resolves a port of a container by number or name.
func portOf(c *corev1.Container, port intstr.IntOrString) (int, error) {
	if port.Type == intstr.Int {
		return validPort(port.IntValue())
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return validPort(int(p.ContainerPort))
		}
	}
	if n, err := strconv.Atoi(port.StrVal); err == nil {
		return validPort(n)
	}
	return 0, fmt.Errorf("couldn't find port: %s in %s", port.StrVal, c.Name)
}

func validPort(n int) (int, error) {
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", n)
	}
	return n, nil
}
