package networking

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api/rules"
)

func validateIngressSpec(spec *networkingv1.IngressSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Rules) == 0 && spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(at, spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if spec.DefaultBackend != nil {
		errs = append(errs, validateBackend(spec.DefaultBackend, at.Child("defaultBackend"))...)
	}
	for i := range spec.Rules {
		errs = append(errs, validateIngressRule(&spec.Rules[i], at.Child("rules").Index(i))...)
	}
	for i, tls := range spec.TLS {
		at := at.Child("tls").Index(i)
		for j, host := range tls.Hosts {
			for _, msg := range hostProblems(host) {
				errs = append(errs, field.Invalid(at.Child("hosts").Index(j), host, msg))
			}
		}
		if tls.SecretName != "" {
			for _, msg := range validation.NameIsDNSSubdomain(tls.SecretName, false) {
				errs = append(errs, field.Invalid(at.Child("secretName"), tls.SecretName, msg))
			}
		}
	}
	if name := spec.IngressClassName; name != nil {
		for _, msg := range validation.NameIsDNSSubdomain(*name, false) {
			errs = append(errs, field.Invalid(at.Child("ingressClassName"), *name, msg))
		}
	}
	return errs
}

func hostProblems(host string) []string {
	if strings.Contains(host, "*") {
		return utilvalidation.IsWildcardDNS1123Subdomain(host)
	}
	return utilvalidation.IsDNS1123Subdomain(host)
}

func validateIngressRule(rule *networkingv1.IngressRule, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if rule.Host != "" {
		if _, err := netip.ParseAddr(rule.Host); err == nil {
			errs = append(errs, field.Invalid(at.Child("host"), rule.Host, "must be a DNS name, not an IP address"))
		}
		for _, msg := range hostProblems(rule.Host) {
			errs = append(errs, field.Invalid(at.Child("host"), rule.Host, msg))
		}
	}
	if rule.HTTP == nil {
		return errs
	}
	at = at.Child("http", "paths")
	if len(rule.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	for i := range rule.HTTP.Paths {
		errs = append(errs, validateIngressPath(&rule.HTTP.Paths[i], at.Index(i))...)
	}
	return errs
}

func validateIngressPath(p *networkingv1.HTTPIngressPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PathType == nil {
		return field.ErrorList{field.Required(at.Child("pathType"), "pathType must be specified")}
	}
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("must not contain '%s'", part)))
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				errs = append(errs, field.Invalid(at.Child("path"), p.Path, fmt.Sprintf("cannot end with '%s'", end)))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
			errs = append(errs, field.Invalid(at.Child("path"), p.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("pathType"), *p.PathType, []networkingv1.PathType{
			networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix}))
	}
	return append(errs, validateBackend(&p.Backend, at.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, at *field.Path) field.ErrorList {
	switch {
	case b.Service != nil && b.Resource != nil:
		return field.ErrorList{field.Invalid(at, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateLocalReference(b.Resource, at.Child("resource"))
	case b.Service == nil:
		return field.ErrorList{field.Invalid(at, "", "must specify a resource or a service backend")}
	}
	var errs field.ErrorList
	at = at.Child("service")
	if b.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		for _, msg := range validation.NameIsDNS1035Label(b.Service.Name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), b.Service.Name, msg))
		}
	}
	switch port := b.Service.Port; {
	case port.Name != "" && port.Number != 0:
		errs = append(errs, field.Invalid(at, "", "cannot set both port name & port number"))
	case port.Name != "":
		for _, msg := range utilvalidation.IsValidPortName(port.Name) {
			errs = append(errs, field.Invalid(at.Child("port", "name"), port.Name, msg))
		}
	case port.Number != 0:
		for _, msg := range utilvalidation.IsValidPortNum(int(port.Number)) {
			errs = append(errs, field.Invalid(at.Child("port", "number"), port.Number, msg))
		}
	default:
		errs = append(errs, field.Required(at, "port name or number is required"))
	}
	return errs
}

func validateLocalReference(ref *corev1.TypedLocalObjectReference, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group := rules.Value(ref.APIGroup); group != "" {
		for _, msg := range utilvalidation.IsDNS1123Subdomain(group) {
			errs = append(errs, field.Invalid(at.Child("apiGroup"), group, msg))
		}
	}
	for _, f := range []struct{ name, value string }{{"kind", ref.Kind}, {"name", ref.Name}} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), f.name+" is required"))
			continue
		}
		for _, msg := range path.IsValidPathSegmentName(f.value) {
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, msg))
		}
	}
	return errs
}

func validateIngressStatus(list []networkingv1.IngressLoadBalancerIngress, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ingress := range list {
		at := at.Index(i)
		if ingress.IP != "" {
			if _, err := netip.ParseAddr(ingress.IP); err != nil {
				errs = append(errs, field.Invalid(at.Child("ip"), ingress.IP, "must be a valid IP address"))
			}
		}
		if ingress.Hostname != "" {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(ingress.Hostname) {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname, msg))
			}
			if _, err := netip.ParseAddr(ingress.Hostname); err == nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), ingress.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

func validateIngressClass(spec *networkingv1.IngressClassSpec) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if len(spec.Controller) > 250 {
		errs = append(errs, field.TooLong(at.Child("controller"), spec.Controller, 250))
	}
	errs = append(errs, utilvalidation.IsDomainPrefixedPath(at.Child("controller"), spec.Controller)...)
	return append(errs, validateIngressClassParameters(spec.Parameters, at.Child("parameters"))...)
}

func validateIngressClassParameters(p *networkingv1.IngressClassParametersReference, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateLocalReference(&corev1.TypedLocalObjectReference{APIGroup: p.APIGroup, Kind: p.Kind, Name: p.Name}, at)
	const cluster, namespace = networkingv1.IngressClassParametersReferenceScopeCluster, networkingv1.IngressClassParametersReferenceScopeNamespace
	switch {
	case p.Scope == nil:
		errs = append(errs, field.Required(at.Child("scope"), ""))
	case *p.Scope != cluster && *p.Scope != namespace:
		errs = append(errs, field.NotSupported(at.Child("scope"), *p.Scope, []string{cluster, namespace}))
	case *p.Scope == namespace && rules.Value(p.Namespace) == "":
		errs = append(errs, field.Required(at.Child("namespace"), fmt.Sprintf("`parameters.scope` is set to %q", namespace)))
	case *p.Scope == namespace:
		for _, msg := range validation.ValidateNamespaceName(*p.Namespace, false) {
			errs = append(errs, field.Invalid(at.Child("namespace"), *p.Namespace, msg))
		}
	case p.Namespace != nil:
		errs = append(errs, field.Forbidden(at.Child("namespace"), fmt.Sprintf("`parameters.scope` is set to %q", cluster)))
	}
	return errs
}

func validateNetworkPolicy(spec *networkingv1.NetworkPolicySpec, at *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabelSelector(&spec.PodSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("podSelector"))
	for i, rule := range spec.Ingress {
		at := at.Child("ingress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, validatePeers(rule.From, at.Child("from"))...)
	}
	for i, rule := range spec.Egress {
		at := at.Child("egress").Index(i)
		errs = append(errs, validatePolicyPorts(rule.Ports, at.Child("ports"))...)
		errs = append(errs, validatePeers(rule.To, at.Child("to"))...)
	}
	types := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}
	if len(spec.PolicyTypes) > len(types) {
		return append(errs, field.Invalid(at.Child("policyTypes"), &spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, kind := range spec.PolicyTypes {
		if !slices.Contains(types, kind) {
			errs = append(errs, field.NotSupported(at.Child("policyTypes").Index(i), kind, types))
		}
	}
	return errs
}

func validatePolicyPorts(ports []networkingv1.NetworkPolicyPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	protocols := []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	for i, p := range ports {
		at := at.Index(i)
		if p.Protocol != nil && !slices.Contains(protocols, *p.Protocol) {
			errs = append(errs, field.NotSupported(at.Child("protocol"), *p.Protocol, protocols))
		}
		switch {
		case p.Port == nil:
			if p.EndPort != nil {
				errs = append(errs, field.Required(at.Child("port"), "must be specified when `endPort` is specified"))
			}
		case p.Port.Type == intstr.Int:
			for _, msg := range utilvalidation.IsValidPortNum(p.Port.IntValue()) {
				errs = append(errs, field.Invalid(at.Child("port"), p.Port.IntVal, msg))
			}
			if p.EndPort != nil {
				if *p.EndPort < p.Port.IntVal {
					errs = append(errs, field.Invalid(at.Child("endPort"), p.Port.IntVal, "must be greater than or equal to `port`"))
				}
				for _, msg := range utilvalidation.IsValidPortNum(int(*p.EndPort)) {
					errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort, msg))
				}
			}
		default:
			if p.EndPort != nil {
				errs = append(errs, field.Invalid(at.Child("endPort"), *p.EndPort, "may not be specified when `port` is non-numeric"))
			}
			for _, msg := range utilvalidation.IsValidPortName(p.Port.StrVal) {
				errs = append(errs, field.Invalid(at.Child("port"), p.Port.StrVal, msg))
			}
		}
	}
	return errs
}

func validatePeers(peers []networkingv1.NetworkPolicyPeer, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	options := metavalidation.LabelSelectorValidationOptions{}
	for i, peer := range peers {
		at := at.Index(i)
		if peer.PodSelector != nil {
			errs = append(errs, metavalidation.ValidateLabelSelector(peer.PodSelector, options, at.Child("podSelector"))...)
		}
		if peer.NamespaceSelector != nil {
			errs = append(errs, metavalidation.ValidateLabelSelector(peer.NamespaceSelector, options, at.Child("namespaceSelector"))...)
		}
		if peer.IPBlock != nil {
			errs = append(errs, validateIPBlock(peer.IPBlock, at.Child("ipBlock"))...)
		}
		switch hasSelector := peer.PodSelector != nil || peer.NamespaceSelector != nil; {
		case !hasSelector && peer.IPBlock == nil:
			errs = append(errs, field.Required(at, "must specify a peer"))
		case hasSelector && peer.IPBlock != nil:
			errs = append(errs, field.Forbidden(at, "may not specify both ipBlock and another peer"))
		}
	}
	return errs
}

func validateIPBlock(block *networkingv1.IPBlock, at *field.Path) field.ErrorList {
	const notCIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
	if block.CIDR == "" {
		return field.ErrorList{field.Required(at.Child("cidr"), "")}
	}
	whole, err := netip.ParsePrefix(block.CIDR)
	if err != nil {
		return field.ErrorList{field.Invalid(at.Child("cidr"), block.CIDR, notCIDR)}
	}
	whole = whole.Masked()
	var errs field.ErrorList
	for i, except := range block.Except {
		at := at.Child("except").Index(i)
		part, err := netip.ParsePrefix(except)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, except, notCIDR))
		case part.Bits() <= whole.Bits() || !whole.Contains(part.Addr()):
			errs = append(errs, field.Invalid(at, except, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
