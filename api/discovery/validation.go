package discovery

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api/rules"
)

const (
	maxTopologyLabels = 16
	maxAddresses      = 100
	maxPorts          = 20000
	maxEndpoints      = 1000
	maxZoneHints      = 8
)

func addressTypes() []discoveryv1.AddressType {
	return []discoveryv1.AddressType{discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
}

func validateEndpointSlice(slice *discoveryv1.EndpointSlice) field.ErrorList {
	var errs field.ErrorList
	switch {
	case slice.AddressType == "":
		errs = append(errs, field.Required(field.NewPath("addressType"), ""))
	case !slices.Contains(addressTypes(), slice.AddressType):
		errs = append(errs, field.NotSupported(field.NewPath("addressType"), slice.AddressType, addressTypes()))
	}
	at := field.NewPath("endpoints")
	if n := len(slice.Endpoints); n > maxEndpoints {
		return append(errs, field.TooMany(at, n, maxEndpoints))
	}
	for i := range slice.Endpoints {
		errs = append(errs, validateEndpoint(&slice.Endpoints[i], slice.AddressType, at.Index(i))...)
	}
	return append(errs, validatePorts(slice.Ports, field.NewPath("ports"))...)
}

func validateEndpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	addresses := at.Child("addresses")
	switch n := len(e.Addresses); {
	case n == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case n > maxAddresses:
		errs = append(errs, field.TooMany(addresses, n, maxAddresses))
	}
	for i, address := range e.Addresses {
		errs = append(errs, validateAddress(address, kind, addresses.Index(i))...)
	}
	if e.NodeName != nil {
		for _, msg := range validation.NameIsDNSSubdomain(*e.NodeName, false) {
			errs = append(errs, field.Invalid(at.Child("nodeName"), *e.NodeName, msg))
		}
	}
	topology := at.Child("deprecatedTopology")
	if n := len(e.DeprecatedTopology); n > maxTopologyLabels {
		errs = append(errs, field.TooMany(topology, n, maxTopologyLabels))
	}
	errs = append(errs, metavalidation.ValidateLabels(e.DeprecatedTopology, topology)...)
	if _, ok := e.DeprecatedTopology[corev1.LabelTopologyZone]; ok {
		errs = append(errs, field.InternalError(topology.Key(corev1.LabelTopologyZone), fmt.Errorf("reserved key was not removed in conversion")))
	}
	if e.Hostname != nil {
		for _, msg := range utilvalidation.IsDNS1123Label(*e.Hostname) {
			errs = append(errs, field.Invalid(at.Child("hostname"), *e.Hostname, msg))
		}
	}
	if e.Hints != nil {
		errs = append(errs, validateHints(e.Hints, at.Child("hints"))...)
	}
	return errs
}

func validateAddress(address string, kind discoveryv1.AddressType, at *field.Path) field.ErrorList {
	ip, err := netip.ParseAddr(address)
	switch {
	case kind == discoveryv1.AddressTypeFQDN:
		return utilvalidation.IsFullyQualifiedDomainName(at, address)
	case kind == discoveryv1.AddressTypeIPv4 && (err != nil || !ip.Is4()):
		return field.ErrorList{field.Invalid(at, address, "must be a valid IPv4 address")}
	case kind == discoveryv1.AddressTypeIPv6 && (err != nil || !ip.Is6()):
		return field.ErrorList{field.Invalid(at, address, "must be a valid IPv6 address")}
	case err != nil:
		return nil
	}
	return validateRoutable(ip, address, at)
}

// validateRoutable keeps traffic of services from being sent to addresses that only mean something on one node.
func validateRoutable(ip netip.Addr, address string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(at, address, fmt.Sprintf("may not be unspecified (%v)", address)))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(at, address, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(at, address, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(at, address, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}

func validateHints(hints *discoveryv1.EndpointHints, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	zones := at.Child("forZones")
	if n := len(hints.ForZones); n > maxZoneHints {
		return append(errs, field.TooMany(zones, n, maxZoneHints))
	}
	seen := map[string]bool{}
	for i, zone := range hints.ForZones {
		name := zones.Index(i).Child("name")
		if seen[zone.Name] {
			errs = append(errs, field.Duplicate(name, zone.Name))
		}
		seen[zone.Name] = true
		for _, msg := range utilvalidation.IsValidLabelValue(zone.Name) {
			errs = append(errs, field.Invalid(name, zone.Name, msg))
		}
	}
	nodes := at.Child("forNodes")
	if n := len(hints.ForNodes); n > maxZoneHints {
		return append(errs, field.TooMany(nodes, n, maxZoneHints))
	}
	clear(seen)
	for i, node := range hints.ForNodes {
		name := nodes.Index(i).Child("name")
		if seen[node.Name] {
			errs = append(errs, field.Duplicate(name, node.Name))
		}
		seen[node.Name] = true
		for _, msg := range validation.NameIsDNSSubdomain(node.Name, false) {
			errs = append(errs, field.Invalid(name, node.Name, msg))
		}
	}
	return errs
}

func validatePorts(ports []discoveryv1.EndpointPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if n := len(ports); n > maxPorts {
		return append(errs, field.TooMany(at, n, maxPorts))
	}
	protocols := []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	seen := map[string]bool{}
	for i, port := range ports {
		at := at.Index(i)
		name := rules.Value(port.Name)
		if name != "" {
			for _, msg := range utilvalidation.IsDNS1123Label(name) {
				errs = append(errs, field.Invalid(at.Child("name"), name, msg))
			}
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at.Child("name"), port.Name))
		}
		seen[name] = true
		if port.Protocol == nil {
			errs = append(errs, field.Required(at.Child("protocol"), ""))
		} else if !slices.Contains(protocols, *port.Protocol) {
			errs = append(errs, field.NotSupported(at.Child("protocol"), *port.Protocol, protocols))
		}
		if port.AppProtocol != nil {
			for _, msg := range utilvalidation.IsQualifiedName(*port.AppProtocol) {
				errs = append(errs, field.Invalid(at.Child("appProtocol"), port.AppProtocol, msg))
			}
		}
	}
	return errs
}
