package connect

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"

	"proa/apiserver/request"
	"proa/client"
)

// splitName reads the name of a proxied thing: [scheme:]name[:port].
func splitName(name string) (scheme, id, port string, ok bool) {
	parts := strings.Split(name, ":")
	switch len(parts) {
	case 1:
		return "http", parts[0], "", true
	case 2:
		return "http", parts[0], parts[1], true
	case 3:
		if parts[0] == "" {
			parts[0] = "http"
		}
		return parts[0], parts[1], parts[2], parts[0] == "http" || parts[0] == "https"
	}
	return "", "", "", false
}

func (x *connector) getPod(r *http.Request, info *request.Info) (*corev1.Pod, error) {
	return client.For[*corev1.Pod](x.config.Client()).Get(r.Context(), info.Namespace, info.Name)
}

func (x *connector) proxyPod(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	scheme, name, port, ok := splitName(info.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", info.Name))
	}
	pod, err := client.For[*corev1.Pod](x.config.Client()).Get(r.Context(), info.Namespace, name)
	if err != nil {
		return err
	}
	if port == "" {
		// The first port that the pod declares.
		for _, c := range pod.Spec.Containers {
			if len(c.Ports) > 0 {
				port = strconv.Itoa(int(c.Ports[0].ContainerPort))
				break
			}
		}
	} else if n, ok := podPort(pod, port); ok {
		port = strconv.Itoa(int(n))
	}
	if pod.Status.PodIP == "" {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("address not allowed: pod %s has no address", name))
	}
	host := pod.Status.PodIP
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	return x.proxy(w, r, info, &url.URL{Scheme: scheme, Host: host})
}

func podPort(pod *corev1.Pod, name string) (int32, bool) {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

func (x *connector) proxyService(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	scheme, name, port, ok := splitName(info.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", info.Name))
	}
	host, err := x.endpoint(r.Context(), info.Namespace, name, port)
	if err != nil {
		return err
	}
	return x.proxy(w, r, info, &url.URL{Scheme: scheme, Host: host})
}

// endpoint picks a ready endpoint of a Service port, given by name or number ("" for the only one).
func (x *connector) endpoint(ctx context.Context, namespace, name, port string) (string, error) {
	c := x.config.Client()
	service, err := client.For[*corev1.Service](c).Get(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Name == port || strconv.Itoa(int(p.Port)) == port || port == "" && len(service.Spec.Ports) == 1
	})
	if i < 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %q found for service %q", port, name))
	}
	wanted := service.Spec.Ports[i].Name
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(service.Spec.Ports[i].Port))), nil
	}
	endpointSlices := client.For[*discoveryv1.EndpointSlice](c).Lister(ctx)
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name})
	var hosts []string
	for s := range endpointSlices.Select(namespace, selector) {
		for _, p := range s.Ports {
			if p.Port == nil || (p.Name == nil && wanted != "") || (p.Name != nil && *p.Name != wanted) {
				continue
			}
			for _, e := range s.Endpoints {
				if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
					hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	if len(hosts) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return hosts[rand.IntN(len(hosts))], nil
}

func (x *connector) proxyNode(w http.ResponseWriter, r *http.Request, info *request.Info) error {
	scheme, name, port, ok := splitName(info.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", info.Name))
	}
	target, err := x.nodeURL(r.Context(), name)
	if err != nil {
		return err
	}
	if port != "" && port != target.Port() {
		target.Scheme, target.Host = scheme, net.JoinHostPort(target.Hostname(), port)
		return x.proxy(w, r, info, target)
	}
	target.Path, target.RawQuery = cmp.Or(info.Rest, "/"), r.URL.RawQuery
	forward(w, r, target, x.nodes, nil)
	return nil
}

// proxy leads to a pod, a Service's endpoint or a port of a node. Links in what comes back are made to go through the
// proxy again.
func (x *connector) proxy(w http.ResponseWriter, r *http.Request, info *request.Info, target *url.URL) error {
	base := strings.TrimSuffix(r.URL.Path, info.Rest)
	if info.Rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasSuffix(r.URL.Path, "/") && r.Header.Get("Upgrade") == "" {
		// Relative links only work below a folder.
		to := r.URL.Path + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	transport := x.pods
	if target.Scheme == "https" {
		transport = x.securePods
	}
	target.Path, target.RawQuery = cmp.Or(info.Rest, "/"), r.URL.RawQuery
	if r.Header.Get("Upgrade") == "" {
		transport = &utilproxy.Transport{PathPrepend: path.Clean(base), RoundTripper: transport} // links stay relative to the server
	}
	forward(w, r, target, transport, nil)
	return nil
}
