package core

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func validateService(obj api.Object) field.ErrorList {
	svc := obj.(*corev1.Service)
	var p problems
	spec, path := &svc.Spec, field.NewPath("spec")
	headless := spec.ClusterIP == corev1.ClusterIPNone
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		p.required(path.Child("ports"), "")
	}
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless {
			p.invalid(path.Child("clusterIPs").Index(0), spec.ClusterIP, fmt.Sprintf("may not be set to 'None' for %s services", spec.Type))
		}
	case corev1.ServiceTypeExternalName:
		p.externalName(spec, path)
	}
	exactlyOneOf(&p, path.Child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort)
	p.servicePorts(spec, path.Child("ports"))
	p.all(metavalidation.ValidateLabels(spec.Selector, path.Child("selector")))
	p.sessionAffinity(spec, path)
	if spec.Type != corev1.ServiceTypeExternalName {
		p.addresses(spec, path)
	}
	for i, ip := range spec.ExternalIPs {
		at := path.Child("externalIPs").Index(i)
		if errs := utilvalidation.IsValidIPForLegacyField(at, ip, false, nil); len(errs) > 0 {
			p.all(errs)
		} else {
			p.ordinaryIP(at, ip)
		}
	}
	p.balancerFields(spec, path)
	p.trafficPolicies(svc, path)
	return p.list
}

func (p *problems) externalName(spec *corev1.ServiceSpec, path *field.Path) {
	const message = "may not be set for ExternalName services"
	if len(spec.ClusterIPs) > 0 {
		p.forbidden(path.Child("clusterIPs"), message)
	}
	if len(spec.IPFamilies) > 0 {
		p.forbidden(path.Child("ipFamilies"), message)
	}
	if spec.IPFamilyPolicy != nil {
		p.forbidden(path.Child("ipFamilyPolicy"), message)
	}
	name := strings.TrimSuffix(spec.ExternalName, ".")
	if name == "" {
		p.required(path.Child("externalName"), "")
		return
	}
	p.messages(path.Child("externalName"), name, utilvalidation.IsDNS1123Subdomain(name))
}

func (p *problems) servicePorts(spec *corev1.ServiceSpec, path *field.Path) {
	type id struct {
		Protocol corev1.Protocol `json:"protocol"`
		Port     int32           `json:"port"`
	}
	names, ports, nodePorts := map[string]bool{}, map[id]bool{}, map[id]bool{}
	for i, port := range spec.Ports {
		at := path.Index(i)
		switch {
		case port.Name != "":
			p.messages(at.Child("name"), port.Name, utilvalidation.IsDNS1123Label(port.Name))
			if names[port.Name] {
				p.duplicate(at.Child("name"), port.Name)
			}
			names[port.Name] = true
		case len(spec.Ports) > 1:
			p.required(at.Child("name"), "")
		}
		p.port(at.Child("port"), port.Port)
		exactlyOneOf(p, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
		p.portOrName(at.Child("targetPort"), port.TargetPort)
		if port.AppProtocol != nil {
			p.qualified(at.Child("appProtocol"), *port.AppProtocol)
		}
		if port.NodePort != 0 {
			if !hasNodePort(spec.Type) {
				p.forbidden(at.Child("nodePort"), fmt.Sprintf("may not be used when `type` is '%s'", spec.Type))
			} else {
				p.port(at.Child("nodePort"), port.NodePort)
			}
			if n := (id{port.Protocol, port.NodePort}); nodePorts[n] {
				p.duplicate(at.Child("nodePort"), port.NodePort)
			} else {
				nodePorts[n] = true
			}
		}
		if n := (id{port.Protocol, port.Port}); ports[n] {
			p.duplicate(at, n)
		} else {
			ports[n] = true
		}
	}
}

func (p *problems) sessionAffinity(spec *corev1.ServiceSpec, path *field.Path) {
	const longest = 24 * 60 * 60
	exactlyOneOf(p, path.Child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	at, c := path.Child("sessionAffinityConfig"), spec.SessionAffinityConfig
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if c != nil {
			p.forbidden(at, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone))
		}
	case corev1.ServiceAffinityClientIP:
		switch {
		case c == nil:
			p.required(at, fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))
		case c.ClientIP == nil:
			p.required(at.Child("clientIP"), fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))
		case c.ClientIP.TimeoutSeconds == nil:
			p.required(at.Child("clientIP", "timeoutSeconds"), fmt.Sprintf("when session affinity type is %s", corev1.ServiceAffinityClientIP))
		case *c.ClientIP.TimeoutSeconds <= 0 || *c.ClientIP.TimeoutSeconds > longest:
			p.invalid(at.Child("clientIP", "timeoutSeconds"), *c.ClientIP.TimeoutSeconds,
				fmt.Sprintf("must be greater than 0 and less than %d", longest))
		}
	}
}

// addresses checks cluster addresses and families against each other.
func (p *problems) addresses(spec *corev1.ServiceSpec, path *field.Path) {
	ips := path.Child("clusterIPs")
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		p.invalid(ips, spec.ClusterIPs, "must be empty when `clusterIP` is not specified")
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		p.required(ips, "")
	case spec.ClusterIP != "" && spec.ClusterIP != spec.ClusterIPs[0]:
		p.invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`")
	}
	optional(p, path.Child("ipFamilyPolicy"), spec.IPFamilyPolicy,
		corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
	seen := map[corev1.IPFamily]bool{}
	for i, f := range spec.IPFamilies {
		at := path.Child("ipFamilies").Index(i)
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			p.list = append(p.list, field.NotSupported(at, f, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}))
		}
		if seen[f] {
			p.duplicate(at, f)
		}
		seen[f] = true
	}
	if single := spec.IPFamilyPolicy != nil && *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack; single {
		if len(spec.ClusterIPs) > 1 {
			p.invalid(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy, "must be RequireDualStack or PreferDualStack when multiple 'clusterIPs' are specified")
		}
		if len(spec.IPFamilies) > 1 {
			p.invalid(path.Child("ipFamilyPolicy"), *spec.IPFamilyPolicy, "must be RequireDualStack or PreferDualStack when multiple 'ipFamilies' are specified")
		}
	}
	p.clusterIPs(spec, ips)
}

func (p *problems) clusterIPs(spec *corev1.ServiceSpec, path *field.Path) {
	if len(spec.ClusterIPs) > 2 {
		p.invalid(path, spec.ClusterIPs, "may only hold up to 2 values")
	}
	families := map[corev1.IPFamily]int{}
	for i, ip := range spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			if i > 0 {
				p.invalid(path.Index(i), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
			} else if len(spec.ClusterIPs) > 1 {
				p.invalid(path.Index(i), ip, "may only hold one value when it is 'None'")
			}
			continue
		}
		errs := utilvalidation.IsValidIPForLegacyField(path.Index(i), ip, false, nil)
		p.all(errs)
		if len(errs) > 0 {
			continue
		}
		family := familyOf(ip)
		families[family]++
		if i < len(spec.IPFamilies) && spec.IPFamilies[i] != family {
			p.invalid(path.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i))
		}
	}
	if families[corev1.IPv4Protocol] > 1 || families[corev1.IPv6Protocol] > 1 {
		p.invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family")
	}
}

func familyOf(ip string) corev1.IPFamily {
	if strings.Contains(ip, ":") {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// ordinaryIP checks that an address is one that traffic can be sent to.
func (p *problems) ordinaryIP(path *field.Path, value string) {
	ip, err := netip.ParseAddr(value)
	if err != nil {
		return
	}
	ip = ip.Unmap()
	for _, c := range []struct {
		is      bool
		message string
	}{
		{ip.IsUnspecified(), fmt.Sprintf("may not be unspecified (%v)", value)},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if c.is {
			p.invalid(path, value, c.message)
		}
	}
}

func (p *problems) balancerFields(spec *corev1.ServiceSpec, path *field.Path) {
	balancer := spec.Type == corev1.ServiceTypeLoadBalancer
	const only = "may only be used when `type` is 'LoadBalancer'"
	if len(spec.LoadBalancerSourceRanges) > 0 {
		at := path.Child("LoadBalancerSourceRanges")
		if !balancer {
			p.forbidden(at, only)
		}
		for i, r := range spec.LoadBalancerSourceRanges {
			p.all(utilvalidation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(r), false, nil))
		}
	}
	if !balancer && spec.AllocateLoadBalancerNodePorts != nil {
		p.forbidden(path.Child("allocateLoadBalancerNodePorts"), only)
	}
	if balancer && spec.AllocateLoadBalancerNodePorts == nil {
		p.required(path.Child("allocateLoadBalancerNodePorts"), "")
	}
	if spec.LoadBalancerClass != nil {
		if !balancer {
			p.forbidden(path.Child("loadBalancerClass"), only)
		}
		p.qualified(path.Child("loadBalancerClass"), *spec.LoadBalancerClass)
	}
}

func (p *problems) trafficPolicies(svc *corev1.Service, path *field.Path) {
	spec := &svc.Spec
	if at := path.Child("externalTrafficPolicy"); !externallyAccessible(svc) {
		if spec.ExternalTrafficPolicy != "" {
			p.invalid(at, spec.ExternalTrafficPolicy, "may only be set for externally-accessible services")
		}
	} else {
		exactlyOneOf(p, at, spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	at := path.Child("healthCheckNodePort")
	switch {
	case !needsHealthCheckPort(svc) && spec.HealthCheckNodePort != 0:
		p.invalid(at, spec.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
	case spec.HealthCheckNodePort != 0:
		p.port(at, spec.HealthCheckNodePort)
	}
	at = path.Child("internalTrafficPolicy")
	if spec.InternalTrafficPolicy == nil {
		if hasClusterIP(spec.Type) {
			p.required(at, "")
		}
	} else {
		optional(p, at, spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	optional(p, path.Child("trafficDistribution"), spec.TrafficDistribution, corev1.ServiceTrafficDistributionPreferClose,
		corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
}

func validateServiceUpdate(obj, old api.Object) field.ErrorList {
	svc, before := obj.(*corev1.Service), old.(*corev1.Service)
	var p problems
	path := field.NewPath("spec")
	if hasClusterIP(svc.Spec.Type) && hasClusterIP(before.Spec.Type) {
		ips, was := svc.Spec.ClusterIPs, before.Spec.ClusterIPs
		// The first address stays for good; a second one may come and go with the policy.
		if len(was) > 0 && len(ips) > 0 && ips[0] != was[0] || len(was) > 0 && len(ips) == 0 {
			p.invalid(path.Child("clusterIPs").Index(0), ips, "may not change once set")
		}
		if len(was) > 1 && len(ips) > 1 && ips[1] != was[1] {
			p.invalid(path.Child("clusterIPs").Index(1), ips, "may not change once set")
		}
		families, were := svc.Spec.IPFamilies, before.Spec.IPFamilies
		for i := range min(len(families), len(were)) {
			if families[i] != were[i] {
				p.invalid(path.Child("ipFamilies").Index(i), families, "may not change once set")
			}
		}
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && before.Spec.Type == corev1.ServiceTypeLoadBalancer {
		p.unchangedOnceSet(svc, before, path)
	}
	p.all(validateService(svc))
	return p.list
}

func (p *problems) unchangedOnceSet(svc, old *corev1.Service, path *field.Path) {
	if a, b := svc.Spec.LoadBalancerClass, old.Spec.LoadBalancerClass; (a == nil) != (b == nil) || a != nil && *a != *b {
		p.invalid(path.Child("loadBalancerClass"), a, "may not change once set")
	}
}

func validateServiceStatus(obj, _ api.Object) field.ErrorList {
	svc := obj.(*corev1.Service)
	var p problems
	path := field.NewPath("status", "loadBalancer")
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) > 0 {
		p.forbidden(path.Child("ingress"), "may only be used when `spec.type` is \"LoadBalancer\"")
		return p.list
	}
	p.all(ValidateLoadBalancerStatus(&svc.Status.LoadBalancer, path))
	return p.list
}

// ValidateLoadBalancerStatus returns what is wrong with the addresses of a load balancer found at path.
func ValidateLoadBalancerStatus(s *corev1.LoadBalancerStatus, path *field.Path) field.ErrorList {
	var p problems
	for i, in := range s.Ingress {
		at := path.Child("ingress").Index(i)
		if in.IP != "" {
			p.ip(at.Child("ip"), in.IP)
		}
		optional(&p, at.Child("ipMode"), in.IPMode, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
		switch {
		case in.IP != "" && in.IPMode == nil:
			p.required(at.Child("ipMode"), "must be specified when `ip` is set")
		case in.IP == "" && in.IPMode != nil:
			p.forbidden(at.Child("ipMode"), "may not be specified when `ip` is not set")
		}
		if in.Hostname != "" {
			p.messages(at.Child("hostname"), in.Hostname, utilvalidation.IsDNS1123Subdomain(in.Hostname))
			if _, err := netip.ParseAddr(in.Hostname); err == nil {
				p.invalid(at.Child("hostname"), in.Hostname, "must be a DNS name, not an IP address")
			}
		}
	}
	return p.list
}

func serviceWarnings(obj, old api.Object) []string {
	svc := obj.(*corev1.Service)
	if svc.DeletionTimestamp != nil {
		return nil
	}
	var w []string
	path := field.NewPath("spec")
	if svc.Spec.ClusterIP == corev1.ClusterIPNone && svc.Spec.SessionAffinity != corev1.ServiceAffinityNone {
		w = append(w, "spec.SessionAffinity is ignored for headless services")
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName && len(svc.Spec.ExternalIPs) > 0 {
		w = append(w, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ExternalName != "" {
		w = append(w, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	for i, ip := range svc.Spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			w = append(w, utilvalidation.GetWarningsForIP(path.Child("clusterIPs").Index(i), ip)...)
		}
	}
	for i, ip := range svc.Spec.ExternalIPs {
		w = append(w, utilvalidation.GetWarningsForIP(path.Child("externalIPs").Index(i), ip)...)
	}
	if ip := svc.Spec.LoadBalancerIP; ip != "" {
		if _, err := netip.ParseAddr(ip); err == nil {
			w = append(w, utilvalidation.GetWarningsForIP(path.Child("loadBalancerIP"), ip)...)
		}
	}
	for i, r := range svc.Spec.LoadBalancerSourceRanges {
		w = append(w, utilvalidation.GetWarningsForCIDR(path.Child("loadBalancerSourceRanges").Index(i), strings.TrimSpace(r))...)
	}
	if o, ok := old.(*corev1.Service); ok && o != nil {
		unchanged := serviceWarnings(o, nil)
		w = slices.DeleteFunc(w, func(s string) bool { return slices.Contains(unchanged, s) })
	}
	return w
}
