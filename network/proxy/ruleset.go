package proxy

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// masqueradeMark is the bit of a packet's mark that says: replace the source when it leaves.
const masqueradeMark = 0x4000

// Names of the sets and chains that all Services share. Sets of one family have its digit appended.
const (
	serviceIPs   = "service-ips"   // address, protocol and port to the chain that picks an endpoint
	servicePorts = "service-ports" // the same for node ports
	refusedIPs   = "refused-ips"   // those without an endpoint
	refusedPorts = "refused-ports"
	guardedIPs   = "guarded-ips" // those with allowed sources
	clusterIPs   = "cluster-ips" // all of them, to refuse the other ports
	hostIPs      = "host-ips"    // address, protocol and port of this node to the chain of a pod
	anyHostPorts = "host-ports"  // the same for all addresses of this node

	services = "services"
	here     = "here"
	refuse   = "refuse"
	guard    = "guard"
	rejected = "reject"
)

var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// base is what the table holds without a Service.
func base() (sets []Set, chains []Chain) {
	for _, f := range []*family{ipv4, ipv6} {
		sets = append(sets,
			Set{Name: serviceIPs + f.suffix, Type: f.services}, Set{Name: servicePorts + f.suffix, Type: PortMap},
			Set{Name: refusedIPs + f.suffix, Type: f.services}, Set{Name: refusedPorts + f.suffix, Type: PortMap},
			Set{Name: guardedIPs + f.suffix, Type: f.services}, Set{Name: clusterIPs + f.suffix, Type: f.addresses},
			Set{Name: hostIPs + f.suffix, Type: f.services}, Set{Name: anyHostPorts + f.suffix, Type: PortMap},
		)
	}
	jump := func(chain string) Statement { return Verdict{"jump", chain}.statement() }
	chains = []Chain{
		// Resets are not counted against the kernel's limit of ICMP errors, past which clients wait instead of being refused.
		{Name: rejected, Rules: []Rule{{isProtocol(TCP), reset()}, {reject()}}},
		{Name: services, Rules: []Rule{
			{ipv4.only(), ipv4.serviceMap(serviceIPs + "4")},
			{ipv6.only(), ipv6.serviceMap(serviceIPs + "6")},
			{local("daddr"), goTo(here).statement()},
		}},
		{Name: here, Rules: []Rule{
			// The kernel lets no packet from ::1 leave the node. That from 127.0.0.1 it may, where the pod network allows it.
			{ipv6.only(), inside("daddr", only(netip.IPv6Loopback())), Verdict{Kind: "return"}.statement()},
			{ipv4.only(), portMap(servicePorts + "4")},
			{ipv6.only(), portMap(servicePorts + "6")},
			{ipv4.only(), ipv4.serviceMap(hostIPs + "4")},
			{ipv6.only(), ipv6.serviceMap(hostIPs + "6")},
			{ipv4.only(), portMap(anyHostPorts + "4")},
			{ipv6.only(), portMap(anyHostPorts + "6")},
		}},
		{Name: guard, Rules: []Rule{
			{ipv4.only(), ipv4.serviceMap(guardedIPs + "4")},
			{ipv6.only(), ipv6.serviceMap(guardedIPs + "6")},
		}},
		{Name: refuse, Rules: []Rule{
			{ipv4.only(), ipv4.serviceMap(refusedIPs + "4")},
			{ipv6.only(), ipv6.serviceMap(refusedIPs + "6")},
			{ipv4.only(), local("daddr"), portMap(refusedPorts + "4")},
			{ipv6.only(), local("daddr"), outside("daddr", only(netip.IPv6Loopback())), portMap(refusedPorts + "6")},
			{ipv4.only(), ipv4.inSet("daddr", clusterIPs+"4"), goTo(rejected).statement()},
			{ipv6.only(), ipv6.inSet("daddr", clusterIPs+"6"), goTo(rejected).statement()},
		}},
		{Name: "nat-prerouting", Hook: &Hook{"nat", "prerouting", -100}, Rules: []Rule{{jump(services)}}},
		{Name: "nat-output", Hook: &Hook{"nat", "output", -100}, Rules: []Rule{{jump(services)}}},
		{Name: "nat-postrouting", Hook: &Hook{"nat", "postrouting", 100}, Rules: []Rule{
			{unmarked(), Verdict{Kind: "return"}.statement()}, {unmark(), masquerade()},
		}},
		// The guard looks at addresses before they are translated, the refusal at those that were not.
		{Name: "guard-prerouting", Hook: &Hook{"filter", "prerouting", -110}, Rules: []Rule{{newConnection(), jump(guard)}}},
		{Name: "guard-output", Hook: &Hook{"filter", "output", -110}, Rules: []Rule{{newConnection(), jump(guard)}}},
		{Name: "refuse-input", Hook: &Hook{"filter", "input", -50}, Rules: []Rule{{newConnection(), jump(refuse)}}},
		{Name: "refuse-forward", Hook: &Hook{"filter", "forward", -50}, Rules: []Rule{{newConnection(), jump(refuse)}}},
		{Name: "refuse-output", Hook: &Hook{"filter", "output", -50}, Rules: []Rule{{newConnection(), jump(refuse)}}},
	}
	return sets, chains
}

// setOf is the shared set that a name and a family mean.
func setOf(name string, f *family) Set {
	switch name {
	case servicePorts, refusedPorts, anyHostPorts:
		return Set{Name: name + f.suffix, Type: PortMap}
	case clusterIPs:
		return Set{Name: name + f.suffix, Type: f.addresses}
	}
	return Set{Name: name + f.suffix, Type: f.services}
}

// place of an element: no two owners may have the same.
type place struct {
	set Set
	key Key
}

// unit is everything in the table that one owner has.
type unit struct {
	chains   map[string]Chain
	sets     map[string]Set
	elements map[place]Verdict
	flows    []flow
}

func newUnit() *unit {
	return &unit{chains: map[string]Chain{}, sets: map[string]Set{}, elements: map[place]Verdict{}}
}

func (u *unit) chain(name string, rules ...Rule) string {
	u.chains[name] = Chain{Name: name, Rules: rules}
	return name
}

func (u *unit) element(set string, f *family, key Key, v Verdict) {
	u.elements[place{setOf(set, f), key}] = v
}

// build makes a Service's part of the table. podCIDRs tell the pods' packets from those of others.
func build(list []servicePort, podCIDRs []netip.Prefix) *unit {
	u := newUnit()
	for i := range list {
		u.add(&list[i], podCIDRs)
	}
	return u
}

func (u *unit) add(p *servicePort, podCIDRs []netip.Prefix) {
	f, number := p.family, uint16(p.port.Port)
	pods := podsOf(podCIDRs, f)
	reachable := len(p.cluster) > 0
	internal, external := u.targets(p, pods)

	u.element(clusterIPs, f, Key{Addr: p.clusterIP}, Verdict{})
	at := Key{p.clusterIP, p.proto, number}
	switch {
	case internal != "":
		u.element(serviceIPs, f, at, goTo(internal))
	case reachable:
		u.element(refusedIPs, f, at, Verdict{Kind: "drop"})
	default:
		u.element(refusedIPs, f, at, goTo(rejected))
	}

	// Without an endpoint here the packet is dropped: the balancer tries another node. Without any it is refused.
	open := func(ips, ports string, v Verdict) {
		for _, a := range p.external {
			u.element(ips, f, Key{a, p.proto, number}, v)
		}
		if p.port.NodePort != 0 {
			u.element(ports, f, Key{Proto: p.proto, Port: uint16(p.port.NodePort)}, v)
		}
	}
	if external != "" {
		open(serviceIPs, servicePorts, goTo(external))
	}
	switch {
	case !reachable:
		open(refusedIPs, refusedPorts, goTo(rejected))
	case p.localOnly() && len(p.local) == 0:
		open(refusedIPs, refusedPorts, Verdict{Kind: "drop"})
	}

	if ranges, limited := p.sourceRanges(); limited && len(p.balancers) > 0 {
		var rule Rule
		for _, r := range ranges {
			rule = append(rule, outside("saddr", r))
		}
		chain := u.chain(p.name("guard"), append(rule, Verdict{Kind: "drop"}.statement()))
		for _, a := range p.balancers {
			u.element(guardedIPs, f, Key{a, p.proto, number}, goTo(chain))
		}
	}
	u.flows = append(u.flows, p.flows()...)
}

// targets makes the chains that pick endpoints and returns the one for traffic from inside and, if anything outside
// leads to the Service, the one for traffic from there. They are empty where there is nothing to pick.
func (u *unit) targets(p *servicePort, pods []netip.Prefix) (internal, external string) {
	exposed := p.port.NodePort != 0 || len(p.external) > 0
	ends := map[netip.AddrPort]string{}
	pick := func(kind string, list []netip.AddrPort) string {
		if len(list) == 0 {
			return ""
		}
		chains := make([]string, len(list))
		for i, e := range list {
			if ends[e] == "" {
				ends[e] = u.endpoint(p, e)
			}
			chains[i] = ends[e]
		}
		return u.chain(p.name(kind), p.pick(chains, list, pods)...)
	}
	var cluster, near string
	if !p.internallyLocalOnly() || exposed {
		cluster = pick("service", p.cluster)
	}
	// Loopback leads to this node first: a packet from there can leave through devices of the pod network only.
	loopback := p.port.NodePort != 0 && p.family == ipv4 && cluster != "" && !slices.Equal(p.local, p.cluster)
	if p.internallyLocalOnly() || exposed && p.localOnly() || loopback {
		near = pick("local", p.local)
	}
	internal = cluster
	if p.internallyLocalOnly() {
		internal = near
	}
	if !exposed || cluster == "" {
		return internal, ""
	}
	var rules []Rule
	masqueraded := func(match Statement, chain string) {
		rules = append(rules, Rule{match, mark()}, Rule{match, goTo(chain).statement()})
	}
	if loopback && near != "" {
		masqueraded(inside("saddr", loopback4), near)
	}
	if !p.localOnly() {
		return internal, u.chain(p.name("external"), append(rules, Rule{mark()}, Rule{goTo(cluster).statement()})...)
	}
	// Pods and the node itself are inside even when they use an outside address, and may go anywhere.
	for _, cidr := range pods {
		rules = append(rules, Rule{inside("saddr", cidr), goTo(cluster).statement()})
	}
	masqueraded(local("saddr"), cluster)
	if near != "" {
		rules = append(rules, Rule{goTo(near).statement()})
	}
	return internal, u.chain(p.name("external"), rules...)
}

// pick are the rules that send a packet to one of the endpoint chains.
func (p *servicePort) pick(chains []string, list []netip.AddrPort, pods []netip.Prefix) []Rule {
	var rules []Rule
	if len(pods) > 0 {
		rule := Rule{inside("daddr", only(p.clusterIP)), isProtocol(p.proto), toPort(uint16(p.port.Port))}
		for _, cidr := range pods {
			rule = append(rule, outside("saddr", cidr))
		}
		rules = append(rules, append(rule, mark()))
	}
	if p.affinity() > 0 {
		for i, e := range list {
			rules = append(rules, Rule{p.family.inSet("saddr", p.affinitySet(e)), goTo(chains[i]).statement()})
		}
	}
	verdicts := make([]Verdict, len(chains))
	for i, c := range chains {
		verdicts[i] = goTo(c)
	}
	return append(rules, Rule{choose(verdicts)})
}

// endpoint makes the chain that sends a packet to an endpoint.
func (u *unit) endpoint(p *servicePort, e netip.AddrPort) string {
	// An endpoint that reaches itself must not see its own address as the source: it would answer itself directly.
	rules := []Rule{{inside("saddr", only(e.Addr())), mark()}}
	if timeout := p.affinity(); timeout > 0 {
		set := Set{Name: p.affinitySet(e), Type: p.family.affinity, Timeout: timeout}
		u.sets[set.Name] = set
		rules = append(rules, Rule{p.family.remember(set.Name)})
	}
	rules = append(rules, Rule{isProtocol(p.proto), dnat(e)})
	return u.chain(p.endpointName("endpoint", e), rules...)
}

// affinity is how long a client stays with its endpoint, or 0.
func (p *servicePort) affinity() time.Duration {
	if p.service.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := int32(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := p.service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
		seconds = value(c.ClientIP.TimeoutSeconds, seconds)
	}
	return time.Duration(seconds) * time.Second
}

func (p *servicePort) affinitySet(e netip.AddrPort) string {
	// The lifetime is part of the name because that of an existing set cannot be changed.
	return fmt.Sprintf("%s-%d", p.endpointName("affinity", e), int(p.affinity().Seconds()))
}

func (p *servicePort) endpointName(kind string, e netip.AddrPort) string {
	return p.unique(kind, "__"+strings.NewReplacer(":", ".", "[", "", "]", "").Replace(e.Addr().String())+"/"+fmt.Sprint(e.Port()))
}

func (p *servicePort) name(kind string) string { return p.unique(kind, "") }

func (p *servicePort) unique(kind, end string) string {
	return unique(kind, p.family, fmt.Sprintf("%s/%s/%s/%s%s", p.service.Namespace, p.service.Name, p.proto, p.port.Name, end))
}

// unique is a name that people recognise and that a hash keeps apart from all others however it is cut.
func unique(kind string, f *family, full string) string {
	sum := sha256.Sum256([]byte(f.name + full))
	hash := base32.StdEncoding.EncodeToString(sum[:5])
	name := kind + f.suffix + "-" + hash + "-" + strings.ReplaceAll(full, "//", "/")
	return name[:min(len(name), 100)]
}

func podsOf(cidrs []netip.Prefix, f *family) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range cidrs {
		if familyOf(c.Addr()) == f {
			out = append(out, c.Masked())
		}
	}
	return out
}

func splitRanges(text string) []string {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
