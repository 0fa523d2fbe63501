package apiserver

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

// serviceAllocator gives Services their cluster IPs and node ports. What is in use is read from the store at the start.
type serviceAllocator struct {
	prefixes []netip.Prefix
	first    int32
	size     int

	mu        sync.Mutex
	addresses map[netip.Addr]bool
	ports     map[int32]bool
}

func newServiceAllocator(s *Server) (*serviceAllocator, error) {
	a := &serviceAllocator{
		first: int32(s.config.NodePorts.Base), size: s.config.NodePorts.Size,
		addresses: map[netip.Addr]bool{}, ports: map[int32]bool{},
	}
	for _, p := range []netip.Prefix{s.config.ServiceCIDR, s.config.ServiceCIDR6} {
		if p.IsValid() {
			if p.Bits() > p.Addr().BitLen()-2 {
				return nil, fmt.Errorf("service range %s is too small", p)
			}
			a.prefixes = append(a.prefixes, p.Masked())
		}
	}
	for v := range s.store.Snapshot().Range("core/services/", "") {
		svc, ok := v.Value.(*object).Object.(*corev1.Service)
		if !ok {
			continue
		}
		for _, ip := range svc.Spec.ClusterIPs {
			if addr, err := netip.ParseAddr(ip); err == nil {
				a.addresses[addr] = true
			}
		}
		for _, port := range nodePorts(svc) {
			a.ports[port] = true
		}
	}
	return a, nil
}

// concerns reports whether writes of a kind go through the allocator.
func (a *serviceAllocator) concerns(v *served) bool {
	return v.prefix == "core/services/" && len(a.prefixes) > 0
}

// allocation is what one write has taken so far.
type allocation struct {
	a         *serviceAllocator
	addresses []netip.Addr
	ports     []int32
}

func (x *allocation) undo() {
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	for _, addr := range x.addresses {
		delete(x.a.addresses, addr)
	}
	for _, p := range x.ports {
		delete(x.a.ports, p)
	}
}

// create allocates for a new Service. release is called once it is known whether the Service was committed.
func (a *serviceAllocator) create(obj api.Object, _ bool) (release func(committed bool), err error) {
	svc := obj.(*corev1.Service)
	x := &allocation{a: a}
	if errs := append(x.takeAddresses(svc, nil), x.takePorts(svc, nil)...); len(errs) > 0 {
		x.undo()
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
	}
	return func(committed bool) {
		if !committed {
			x.undo()
		}
	}, nil
}

// update allocates what a changed Service needs more than before, and releases what it needs no longer once committed.
func (a *serviceAllocator) update(obj, before api.Object, _ bool) (release func(committed bool), err error) {
	svc, old := obj.(*corev1.Service), before.(*corev1.Service)
	keepAllocated(svc, old)
	x := &allocation{a: a}
	if errs := append(x.takeAddresses(svc, old), x.takePorts(svc, old)...); len(errs) > 0 {
		x.undo()
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, errs)
	}
	return func(committed bool) {
		if !committed {
			x.undo()
			return
		}
		a.free(old, svc)
	}, nil
}

// released gives back what a deleted Service had.
func (a *serviceAllocator) released(obj api.Object) { a.free(obj.(*corev1.Service), &corev1.Service{}) }

func (a *serviceAllocator) free(old, kept *corev1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keep := map[string]bool{}
	for _, ip := range kept.Spec.ClusterIPs {
		keep[ip] = true
	}
	for _, ip := range old.Spec.ClusterIPs {
		if addr, err := netip.ParseAddr(ip); err == nil && !keep[ip] {
			delete(a.addresses, addr)
		}
	}
	ports := map[int32]bool{}
	for _, p := range nodePorts(kept) {
		ports[p] = true
	}
	for _, p := range nodePorts(old) {
		if !ports[p] {
			delete(a.ports, p)
		}
	}
}

// keepAllocated fills in what clients leave out of an update.
func keepAllocated(svc, old *corev1.Service) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		if old.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP == old.Spec.ClusterIP {
			svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil
			svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy = nil, nil
		}
		return
	}
	if old.Spec.Type != corev1.ServiceTypeExternalName {
		if svc.Spec.ClusterIP == "" {
			svc.Spec.ClusterIP = old.Spec.ClusterIP
		}
		if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP == old.Spec.ClusterIP {
			svc.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
		if len(svc.Spec.IPFamilies) == 0 {
			svc.Spec.IPFamilies = old.Spec.IPFamilies
		}
		if svc.Spec.IPFamilyPolicy == nil {
			svc.Spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		}
		if svc.Spec.InternalTrafficPolicy == nil {
			svc.Spec.InternalTrafficPolicy = old.Spec.InternalTrafficPolicy
		}
	}
	if needsPorts(svc) && needsPorts(old) {
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			for _, q := range old.Spec.Ports {
				if p.NodePort == 0 && p.Port == q.Port && p.Protocol == q.Protocol {
					p.NodePort = q.NodePort
				}
			}
		}
		if svc.Spec.HealthCheckNodePort == 0 && needsHealthPort(svc) && needsHealthPort(old) {
			svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
		}
	}
	if !needsPorts(svc) && needsPorts(old) {
		for i := range svc.Spec.Ports {
			for _, q := range old.Spec.Ports {
				if svc.Spec.Ports[i].NodePort == q.NodePort {
					svc.Spec.Ports[i].NodePort = 0
				}
			}
		}
	}
	if !needsHealthPort(svc) && needsHealthPort(old) {
		svc.Spec.HealthCheckNodePort = 0
	}
}

func needsPorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		(svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts)
}

func needsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func nodePorts(svc *corev1.Service) []int32 {
	var out []int32
	for _, p := range svc.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, p.NodePort)
		}
	}
	if p := svc.Spec.HealthCheckNodePort; p != 0 {
		out = append(out, p)
	}
	return out
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// takeAddresses defaults the families and allocates the cluster IPs.
func (x *allocation) takeAddresses(svc, old *corev1.Service) field.ErrorList {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if len(spec.ClusterIPs) == 0 && spec.ClusterIP != "" {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if spec.ClusterIP == "" && len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	headless := spec.ClusterIP == corev1.ClusterIPNone
	if spec.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		if headless && len(spec.Selector) == 0 && len(spec.IPFamilies) == 0 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		if len(spec.IPFamilies) > 1 || len(spec.ClusterIPs) > 1 {
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		spec.IPFamilyPolicy = &policy
	}
	selectorless := headless && len(spec.Selector) == 0 // its addresses come from elsewhere, in any family
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicyRequireDualStack && len(x.a.prefixes) < 2 && !selectorless {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), *spec.IPFamilyPolicy, "this cluster is not configured for dual-stack services")}
	}
	if len(spec.IPFamilies) == 0 {
		for _, ip := range spec.ClusterIPs {
			if addr, err := netip.ParseAddr(ip); err == nil {
				spec.IPFamilies = append(spec.IPFamilies, familyOf(addr))
			}
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{familyOf(x.a.prefixes[0].Addr())}
	}
	if *spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack && len(spec.IPFamilies) == 1 && (len(x.a.prefixes) > 1 || selectorless) {
		other := corev1.IPv6Protocol
		if spec.IPFamilies[0] == other {
			other = corev1.IPv4Protocol
		}
		spec.IPFamilies = append(spec.IPFamilies, other)
	}
	if headless {
		spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return nil
	}
	had := map[string]bool{}
	if old != nil {
		for _, ip := range old.Spec.ClusterIPs {
			had[ip] = true
		}
	}
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	families := spec.IPFamilies
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack {
		families = families[:1]
	}
	for i, family := range families {
		path := field.NewPath("spec", "clusterIPs")
		var prefix netip.Prefix
		for _, p := range x.a.prefixes {
			if familyOf(p.Addr()) == family {
				prefix = p
			}
		}
		if !prefix.IsValid() {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster")}
		}
		if i < len(spec.ClusterIPs) {
			ip := spec.ClusterIPs[i]
			if had[ip] {
				continue
			}
			addr, err := netip.ParseAddr(ip)
			if err != nil {
				return field.ErrorList{field.Invalid(path.Index(i), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")}
			}
			if !prefix.Contains(addr) {
				return field.ErrorList{field.Invalid(path, spec.ClusterIPs, fmt.Sprintf(
					"failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, ip, prefix.Masked()))}
			}
			if x.a.addresses[addr] {
				return field.ErrorList{field.Invalid(path, spec.ClusterIPs, fmt.Sprintf(
					"failed to allocate IP %s: provided IP is already allocated", ip))}
			}
			x.take(addr)
			continue
		}
		addr, ok := x.a.pick(prefix)
		if !ok {
			return field.ErrorList{field.InternalError(path, fmt.Errorf("failed to allocate a serviceIP: range is full"))}
		}
		x.take(addr)
		spec.ClusterIPs = append(spec.ClusterIPs, addr.String())
	}
	spec.ClusterIP = spec.ClusterIPs[0]
	return nil
}

func (x *allocation) take(addr netip.Addr) {
	x.a.addresses[addr] = true
	x.addresses = append(x.addresses, addr)
}

// pick chooses a free address: at random from the upper part of the range, which is kept free of the addresses that
// people choose themselves, and only then from the lower. The lock is held.
func (a *serviceAllocator) pick(prefix netip.Prefix) (netip.Addr, bool) {
	bits := min(prefix.Addr().BitLen()-prefix.Bits(), 16)
	size := 1 << bits
	// The first address is the network's, the last the broadcast address of IPv4; the very first Service takes .1.
	last := size - 1
	if prefix.Addr().Is4() {
		last--
	}
	lower := min(max(16, size/16), 256)
	if lower >= last {
		lower = 0
	}
	for _, band := range [][2]int{{lower + 1, last}, {2, lower}} {
		n := band[1] - band[0] + 1
		if n <= 0 {
			continue
		}
		start := rand.IntN(n)
		for i := range n {
			addr := offset(prefix.Addr(), band[0]+(start+i)%n)
			if !a.addresses[addr] {
				return addr, true
			}
		}
	}
	return netip.Addr{}, false
}

// offset is the address n after base.
func offset(base netip.Addr, n int) netip.Addr {
	raw := base.AsSlice()
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	out, _ := netip.AddrFromSlice(raw)
	return out
}

// takePorts allocates the node ports.
func (x *allocation) takePorts(svc, old *corev1.Service) field.ErrorList {
	had := map[int32]bool{}
	if old != nil {
		for _, p := range nodePorts(old) {
			had[p] = true
		}
	}
	x.a.mu.Lock()
	defer x.a.mu.Unlock()
	var errs field.ErrorList
	want := func(path *field.Path, port *int32, needed bool) {
		switch {
		case *port == 0 && !needed, had[*port] && *port != 0:
			return
		case *port == 0:
			p, ok := x.a.pickPort()
			if !ok {
				errs = append(errs, field.InternalError(path, fmt.Errorf("failed to allocate a nodePort: range is full")))
				return
			}
			*port = p
		case *port < x.a.first || int(*port-x.a.first) >= x.a.size:
			errs = append(errs, field.Invalid(path, *port, fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d",
				x.a.first, int(x.a.first)+x.a.size-1)))
			return
		case x.a.ports[*port]:
			errs = append(errs, field.Invalid(path, *port, "provided port is already allocated"))
			return
		}
		x.a.ports[*port] = true
		x.ports = append(x.ports, *port)
	}
	// TCP and UDP of one port number share a node port when the client asks for it.
	mine := map[int32]map[corev1.Protocol]bool{}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort != 0 && mine[p.NodePort] != nil && !mine[p.NodePort][p.Protocol] {
			mine[p.NodePort][p.Protocol] = true
			continue
		}
		want(field.NewPath("spec", "ports").Index(i).Child("nodePort"), &p.NodePort, needsPorts(svc))
		if p.NodePort != 0 {
			mine[p.NodePort] = map[corev1.Protocol]bool{p.Protocol: true}
		}
	}
	if needsHealthPort(svc) {
		want(field.NewPath("spec", "healthCheckNodePort"), &svc.Spec.HealthCheckNodePort, true)
	}
	return errs
}

// pickPort chooses a free port at random, from the upper part of the range first. The lock is held.
func (a *serviceAllocator) pickPort() (int32, bool) {
	lower := min(max(16, a.size/32), 128)
	if lower >= a.size {
		lower = 0
	}
	for _, band := range [][2]int{{lower, a.size}, {0, lower}} {
		n := band[1] - band[0]
		if n <= 0 {
			continue
		}
		start := rand.IntN(n)
		for i := range n {
			p := a.first + int32(band[0]+(start+i)%n)
			if !a.ports[p] {
				return p, true
			}
		}
	}
	return 0, false
}
