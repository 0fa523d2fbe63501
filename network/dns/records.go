package dns

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa/client"
)

// records knows the names of the cluster: indexes over the shared objects, nothing of its own.
type records struct {
	services   *client.Index[*corev1.Service]            // by "namespace/name" and by address
	slices     *client.Index[*discoveryv1.EndpointSlice] // by "namespace/service" and by address
	synced     atomic.Bool
	mu         sync.RWMutex
	namespaces map[string]bool
}

func newRecords() *records {
	return &records{
		services: client.NewIndex(func(s *corev1.Service) []string {
			keys := []string{s.Namespace + "/" + s.Name}
			for _, ip := range clusterIPs(s) {
				keys = append(keys, ip.String())
			}
			return keys
		}),
		slices: client.NewIndex(func(s *discoveryv1.EndpointSlice) []string {
			seen := map[string]bool{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]: true}
			for _, e := range s.Endpoints {
				for _, a := range e.Addresses {
					if ip, err := netip.ParseAddr(a); err == nil {
						seen[ip.String()] = true
					}
				}
			}
			keys := make([]string, 0, len(seen))
			for k := range seen {
				keys = append(keys, k)
			}
			return keys
		}),
		namespaces: map[string]bool{},
	}
}

func (r *records) scopes(c client.Interface) []client.Scope {
	return []client.Scope{
		client.For[*corev1.Service](c).Scope(), client.For[*discoveryv1.EndpointSlice](c).Scope(), client.For[*corev1.Namespace](c).Scope(),
	}
}

func (r *records) observe(e client.Event) {
	if e.Synced() {
		r.synced.Store(true)
		return
	}
	r.services.Apply(e)
	r.slices.Apply(e)
	if ns, ok := e.Object().(*corev1.Namespace); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.New == nil {
			delete(r.namespaces, ns.Name)
		} else {
			r.namespaces[ns.Name] = true
		}
	}
}

func (r *records) namespace(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.namespaces[name]
}

// result of a lookup: a name that exists may have no records of the type that was asked for.
type result struct {
	exists bool
	alias  string
	rrs    []dns.RR
	extra  map[string][]dns.RR // addresses of SRV targets
}

// lookup returns the records of a name in the zone; both are in lower case.
func (r *records) lookup(zone, name string) result {
	labels := dns.SplitDomainName(strings.TrimSuffix(name, zone))
	slices.Reverse(labels) // the most general first
	exists := result{exists: true}
	if len(labels) == 0 {
		return result{exists: true, rrs: []dns.RR{&dns.NS{Hdr: header(name, dns.TypeNS), Ns: "ns.dns." + zone}}}
	}
	switch labels[0] {
	case "dns-version":
		if len(labels) == 1 {
			return result{exists: true, rrs: []dns.RR{&dns.TXT{Hdr: header(name, dns.TypeTXT), Txt: []string{"1.1.0"}}}}
		}
	case "dns":
		switch {
		case len(labels) == 1:
			return exists
		case len(labels) == 2 && labels[1] == "ns":
			return r.serviceName(zone, name, "kube-system", "kube-dns")
		}
	case "pod":
		switch {
		case len(labels) == 1:
			return exists
		case !r.namespace(labels[1]):
		case len(labels) == 2:
			return exists
		case len(labels) == 3:
			return podAddress(name, labels[2])
		}
	case "svc":
		switch {
		case len(labels) == 1:
			return exists
		case !r.namespace(labels[1]):
		case len(labels) == 2:
			return exists
		case len(labels) == 3:
			return r.serviceName(zone, name, labels[1], labels[2])
		case len(labels) == 4 || len(labels) == 5:
			return r.belowService(zone, name, labels)
		}
	}
	return result{}
}

// podAddress answers "10-0-0-1.ns.pod": the name says the address.
func podAddress(name, label string) result {
	text := strings.ReplaceAll(label, "-", ".")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		if addr, err = netip.ParseAddr(strings.ReplaceAll(label, "-", ":")); err != nil {
			return result{}
		}
	}
	return result{exists: true, rrs: []dns.RR{address(name, addr)}}
}

func (r *records) service(namespace, name string) *corev1.Service {
	for s := range r.services.Lookup(namespace + "/" + name) {
		return s
	}
	return nil
}

// serviceName answers "service.ns.svc".
func (r *records) serviceName(zone, name, namespace, service string) result {
	s := r.service(namespace, service)
	if s == nil {
		return result{}
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return result{exists: true, alias: dns.Fqdn(s.Spec.ExternalName)}
	}
	out := result{exists: true}
	if ips := clusterIPs(s); len(ips) > 0 {
		for _, ip := range ips {
			out.rrs = append(out.rrs, address(name, ip))
		}
	} else {
		seen := map[netip.Addr]bool{}
		for _, e := range r.endpoints(s) {
			if !seen[e.addr] {
				seen[e.addr] = true
				out.rrs = append(out.rrs, address(name, e.addr))
			}
		}
		rand.Shuffle(len(out.rrs), func(i, j int) { out.rrs[i], out.rrs[j] = out.rrs[j], out.rrs[i] })
	}
	srv := r.srv(zone, name, s, func(string, corev1.Protocol) bool { return true })
	out.rrs, out.extra = append(out.rrs, srv.rrs...), srv.extra
	return out
}

// belowService answers "_port._proto.service.ns.svc" and "hostname.service.ns.svc".
func (r *records) belowService(zone, name string, labels []string) result {
	s := r.service(labels[1], labels[2])
	if s == nil || s.Spec.Type == corev1.ServiceTypeExternalName {
		return result{}
	}
	proto, isProto := strings.CutPrefix(labels[3], "_")
	if isProto {
		port := ""
		if len(labels) == 5 {
			var ok bool
			if port, ok = strings.CutPrefix(labels[4], "_"); !ok {
				return result{}
			}
		}
		out := r.srv(zone, name, s, func(n string, p corev1.Protocol) bool {
			return strings.EqualFold(string(p), proto) && n != "" && (len(labels) == 4 || strings.ToLower(n) == port)
		})
		if len(labels) == 4 {
			out.rrs, out.extra = nil, nil // only exists because names below it do
		}
		return out
	}
	if len(labels) == 5 || len(clusterIPs(s)) > 0 {
		return result{}
	}
	var out result
	seen := map[netip.Addr]bool{}
	for _, e := range r.endpoints(s) {
		if e.label() == labels[3] && !seen[e.addr] {
			seen[e.addr] = true
			out.exists, out.rrs = true, append(out.rrs, address(name, e.addr))
		}
	}
	return out
}

// srv returns the SRV records of the ports that match, and the addresses of their targets.
func (r *records) srv(zone, name string, s *corev1.Service, match func(string, corev1.Protocol) bool) result {
	out := result{extra: map[string][]dns.RR{}}
	base := s.Name + "." + s.Namespace + ".svc." + zone
	if ips := clusterIPs(s); len(ips) > 0 {
		for _, ip := range ips {
			out.extra[base] = append(out.extra[base], address(base, ip))
		}
		for _, p := range s.Spec.Ports {
			if match(p.Name, p.Protocol) {
				out.exists = true
				out.rrs = append(out.rrs, &dns.SRV{Hdr: header(name, dns.TypeSRV), Weight: 100, Port: uint16(p.Port), Target: base})
			}
		}
		return out
	}
	for _, p := range s.Spec.Ports {
		out.exists = out.exists || match(p.Name, p.Protocol)
	}
	type target struct {
		name string
		port uint16
	}
	seen := map[target]bool{}
	known := map[netip.Addr]bool{}
	for _, e := range r.endpoints(s) {
		host := e.label() + "." + base
		if !known[e.addr] {
			known[e.addr] = true
			out.extra[host] = append(out.extra[host], address(host, e.addr))
		}
		for _, p := range e.ports {
			if p.Port == nil || !match(deref(p.Name), cmp.Or(deref(p.Protocol), corev1.ProtocolTCP)) {
				continue
			}
			t := target{host, uint16(*p.Port)}
			if seen[t] {
				continue
			}
			seen[t] = true
			out.exists = true
			out.rrs = append(out.rrs, &dns.SRV{Hdr: header(name, dns.TypeSRV), Port: t.port, Target: host})
		}
	}
	for _, rr := range out.rrs {
		rr.(*dns.SRV).Weight = uint16(max(1, 100/len(out.rrs)))
	}
	return out
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// endpoint of a Service that may be published.
type endpoint struct {
	addr     netip.Addr
	hostname string
	ports    []discoveryv1.EndpointPort
}

// label is the endpoint's name below its Service: its hostname or, without one, its address.
func (e endpoint) label() string {
	if e.hostname != "" {
		return strings.ToLower(e.hostname)
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.addr.StringExpanded())
}

// endpoints of a headless Service that are ready, or all if the Service wants that.
func (r *records) endpoints(s *corev1.Service) []endpoint {
	var out []endpoint
	for slice := range r.slices.Lookup(s.Namespace + "/" + s.Name) {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready && !s.Spec.PublishNotReadyAddresses {
				continue
			}
			for _, a := range e.Addresses {
				if addr, err := netip.ParseAddr(a); err == nil {
					out = append(out, endpoint{addr, deref(e.Hostname), slice.Ports})
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	return out
}

// names of an address, sorted.
func (r *records) names(addr netip.Addr, zone string) []string {
	var out []string
	for s := range r.services.Lookup(addr.String()) {
		out = append(out, fmt.Sprintf("%s.%s.svc.%s", s.Name, s.Namespace, zone))
	}
	var found []*discoveryv1.EndpointSlice
	for slice := range r.slices.Lookup(addr.String()) {
		found = append(found, slice)
	}
	for _, slice := range found {
		s := r.service(slice.Namespace, slice.Labels[discoveryv1.LabelServiceName])
		if s == nil || len(clusterIPs(s)) > 0 {
			continue
		}
		for _, e := range r.endpoints(s) {
			if e.addr == addr {
				out = append(out, fmt.Sprintf("%s.%s.%s.svc.%s", e.label(), s.Name, s.Namespace, zone))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// clusterIPs of a Service; none if it is headless.
func clusterIPs(s *corev1.Service) []netip.Addr {
	list := s.Spec.ClusterIPs
	if len(list) == 0 {
		list = []string{s.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, text := range list {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

func address(name string, a netip.Addr) dns.RR {
	if a.Is4() {
		return &dns.A{Hdr: header(name, dns.TypeA), A: a.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(name, dns.TypeAAAA), AAAA: a.AsSlice()}
}
