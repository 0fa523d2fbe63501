// Package connect carries requests through the API server to nodes, pods and Services: exec, attach, port-forward, logs and
// the proxies. It finds the target, and then passes bytes on, upgraded connections included; the node's own server
// speaks SPDY and WebSocket.
package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/apiserver/request"
	"proa/client"
)

// Config of the connectors.
type Config struct {
	// Client returns the client with the server's own rights.
	Client func() client.Interface
	// NodeTLS is how the server shows itself to nodes and knows them.
	NodeTLS *tls.Config
	// Dial opens connections to nodes, pods and Services. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

type connector struct {
	config Config
	nodes  http.RoundTripper
	pods   http.RoundTripper
	// securePods reaches pods and Services that ask for https in a proxy URL; their certificates are their own.
	securePods http.RoundTripper
}

// New returns the connectors by the subresource that they serve.
func New(c Config) map[string]request.Connector {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	// HTTP/1.1 only: an upgrade takes a whole connection.
	transport := func(config *tls.Config) *http.Transport {
		return &http.Transport{
			DialContext: c.Dial, TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		}
	}
	x := &connector{
		config:     c,
		nodes:      transport(c.NodeTLS),
		pods:       transport(nil),
		securePods: transport(&tls.Config{InsecureSkipVerify: true}),
	}
	return map[string]request.Connector{
		"pods/exec":        x.exec,
		"pods/attach":      x.attach,
		"pods/portforward": x.portForward,
		"pods/log":         x.logs,
		"pods/proxy":       x.proxyPod,
		"services/proxy":   x.proxyService,
		"nodes/proxy":      x.proxyNode,
	}
}

// pod returns a pod that is on a node.
func (x *connector) pod(ctx context.Context, info *request.Info) (*corev1.Pod, error) {
	pod, err := client.For[*corev1.Pod](x.config.Client()).Get(ctx, info.Namespace, info.Name)
	if err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return pod, nil
}

// nodeURL is the address of a node's own server.
func (x *connector) nodeURL(ctx context.Context, name string) (*url.URL, error) {
	node, err := client.For[*corev1.Node](x.config.Client()).Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = 10250
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				return &url.URL{Scheme: "https", Host: net.JoinHostPort(a.Address, strconv.Itoa(int(port)))}, nil
			}
		}
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no preferred addresses found for node %q; known addresses: []", name))
}

// forward passes the request on to target, whose path and query replace the request's.
func forward(w http.ResponseWriter, r *http.Request, target *url.URL, transport http.RoundTripper, modify func(*http.Response) error) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = target
			p.Out.Host = target.Host
			// Whose credentials these are was decided here; the target does not get them.
			p.Out.Header.Del("Authorization")
			p.SetXForwarded()
		},
		Transport:      transport,
		FlushInterval:  -1, // logs and watches are read as they come
		ModifyResponse: modify,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeStatus(w, apierrors.NewServiceUnavailable("error trying to reach service: "+err.Error()))
		},
	}
	proxy.ServeHTTP(w, r)
}
