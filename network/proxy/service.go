package proxy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one address behind a Service's port, from this node's point of view.
type endpoint struct {
	netip.AddrPort
	local, ready, serving bool
	zones                 []string // that should use it
}

// servicePort is a port of a Service in one IP family, ready to become rules.
type servicePort struct {
	service   *corev1.Service
	port      corev1.ServicePort
	proto     Protocol
	family    *family
	clusterIP netip.Addr
	// external are the addresses that accept traffic from outside, balancers those of them that a load balancer owns.
	external, balancers []netip.Addr
	// cluster are the endpoints for traffic that may go anywhere, local those on this node.
	cluster, local []netip.AddrPort
	// readyHere are the addresses of the ready endpoints on this node.
	readyHere []netip.Addr
}

// proxied reports whether a Service is the proxy's business.
func proxied(s *corev1.Service) bool {
	if s == nil || s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	// Users give Services with this label to another proxy.
	_, others := s.Labels["service.kubernetes.io/service-proxy-name"]
	return !others
}

// ports of a Service as seen by a node in a zone.
func ports(s *corev1.Service, endpointSlices []*discoveryv1.EndpointSlice, node, zone string) []servicePort {
	var out []servicePort
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	for _, ip := range ips {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			continue
		}
		f := familyOf(addr)
		balancers := balancerIPs(s, f)
		external := slices.Concat(parse(s.Spec.ExternalIPs, f), balancers)
		for _, p := range s.Spec.Ports {
			proto := protocol(p.Protocol)
			sp := servicePort{
				service: s, port: p, proto: proto, family: f, clusterIP: addr, external: external, balancers: balancers,
			}
			all := endpoints(endpointSlices, p, f, node)
			sp.cluster = usable(nearby(s, all, zone))
			here := slices.DeleteFunc(slices.Clone(all), func(e endpoint) bool { return !e.local })
			sp.local = usable(here)
			for _, e := range here {
				if e.ready {
					sp.readyHere = append(sp.readyHere, e.Addr())
				}
			}
			out = append(out, sp)
		}
	}
	return out
}

func protocol(p corev1.Protocol) Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return UDP
	case corev1.ProtocolSCTP:
		return SCTP
	}
	return TCP
}

// parse returns the addresses of a family in a list.
func parse(list []string, f *family) []netip.Addr {
	var out []netip.Addr
	for _, text := range list {
		if a, err := netip.ParseAddr(text); err == nil && familyOf(a) == f {
			out = append(out, a)
		}
	}
	return out
}

// balancerIPs are the addresses of a load balancer that hands packets to nodes unchanged. One with ipMode Proxy sends
// its own to node ports.
func balancerIPs(s *corev1.Service, f *family) []netip.Addr {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	var list []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			list = append(list, ingress.IP)
		}
	}
	return parse(list, f)
}

// endpoints behind a port, each address once, in the order of addresses.
func endpoints(endpointSlices []*discoveryv1.EndpointSlice, port corev1.ServicePort, f *family, node string) []endpoint {
	found := map[netip.AddrPort]endpoint{}
	for _, slice := range endpointSlices {
		for _, p := range slice.Ports {
			if p.Port == nil || value(p.Name, "") != port.Name || value(p.Protocol, corev1.ProtocolTCP) != cmp.Or(port.Protocol, corev1.ProtocolTCP) {
				continue
			}
			for _, e := range slice.Endpoints {
				if len(e.Addresses) == 0 {
					continue
				}
				addr, err := netip.ParseAddr(e.Addresses[0])
				if err != nil || familyOf(addr) != f {
					continue
				}
				ready := value(e.Conditions.Ready, true)
				out := endpoint{
					AddrPort: netip.AddrPortFrom(addr, uint16(*p.Port)),
					local:    e.NodeName != nil && *e.NodeName == node,
					ready:    ready,
					serving:  value(e.Conditions.Serving, ready) && value(e.Conditions.Terminating, false),
				}
				if e.Hints != nil {
					for _, z := range e.Hints.ForZones {
						out.zones = append(out.zones, z.Name)
					}
				}
				// While an address moves between slices it is in both; the better report counts.
				if old, ok := found[out.AddrPort]; !ok || !old.ready {
					found[out.AddrPort] = out
				}
			}
		}
	}
	out := make([]endpoint, 0, len(found))
	for _, e := range found {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b endpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return out
}

func value[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// usable are the ready endpoints or, when there is none, those that still serve while they terminate.
func usable(list []endpoint) []netip.AddrPort {
	var ready, serving []netip.AddrPort
	for _, e := range list {
		switch {
		case e.ready:
			ready = append(ready, e.AddrPort)
		case e.serving:
			serving = append(serving, e.AddrPort)
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return serving
}

// nearby are the endpoints that are meant for a zone. The hints count only when all ready endpoints have one and some
// are for this zone; a half-made set of hints would overload those that have them.
func nearby(s *corev1.Service, list []endpoint, zone string) []endpoint {
	mode := cmp.Or(s.Annotations[corev1.AnnotationTopologyMode], s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints])
	if zone == "" || mode != "Auto" && mode != "auto" && s.Spec.TrafficDistribution == nil {
		return list
	}
	var here []endpoint
	for _, e := range list {
		if !e.ready {
			continue
		}
		if len(e.zones) == 0 {
			return list
		}
		if slices.Contains(e.zones, zone) {
			here = append(here, e)
		}
	}
	if len(here) == 0 {
		return list
	}
	return here
}

// localOnly reports whether traffic from outside may only reach endpoints of this node.
func (p *servicePort) localOnly() bool {
	return p.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// internallyLocalOnly reports whether traffic from inside may only reach endpoints of this node.
func (p *servicePort) internallyLocalOnly() bool {
	return value(p.service.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster) == corev1.ServiceInternalTrafficPolicyLocal
}

// sourceRanges are the sources that may use the load balancer's addresses; limited says whether there is such a limit.
func (p *servicePort) sourceRanges() (ranges []netip.Prefix, limited bool) {
	list := p.service.Spec.LoadBalancerSourceRanges
	if len(list) == 0 {
		list = splitRanges(p.service.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey])
	}
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || familyOf(prefix.Addr()) != p.family {
			continue
		}
		if prefix.Bits() == 0 {
			return nil, false
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, len(ranges) > 0
}
