package core

import (
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa/api"
)

func services() *api.Resource {
	doc := corev1.ServiceSpec{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind:     kind("Service"),
		Plural:               "services",
		Singular:             "service",
		ShortNames:           []string{"svc"},
		Categories:           []string{"all"},
		Namespaced:           true,
		New:                  func() api.Object { return new(corev1.Service) },
		NewList:              func() runtime.Object { return new(corev1.ServiceList) },
		CreateOnUpdate:       true,
		ValidateName:         validation.NameIsDNS1035Label,
		Subresources:         []api.Subresource{proxied("ServiceProxyOptions"), api.Status()},
		Default:              defaultService,
		PrepareCreate:        prepareService,
		PrepareUpdate:        prepareServiceUpdate,
		Validate:             validateService,
		ValidateUpdate:       validateServiceUpdate,
		ValidateStatusUpdate: validateServiceStatus,
		Warnings:             serviceWarnings,
		FieldNames:           []string{"spec.clusterIP", "spec.type"},
		FieldValue:           serviceField,
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Type", doc["type"]),
			api.Text("Cluster-IP", doc["clusterIP"]),
			api.Text("External-IP", doc["externalIPs"]),
			api.Text("Port(s)", doc["ports"]),
			api.AgeColumn(),
			api.Wide("Selector", doc["selector"]),
		},
		Cells: serviceCells,
	}
}

func serviceField(obj api.Object, name string) string {
	svc := obj.(*corev1.Service)
	switch name {
	case "spec.clusterIP":
		return svc.Spec.ClusterIP
	case "spec.type":
		return string(svc.Spec.Type)
	}
	return ""
}

func defaultService(obj api.Object) {
	svc := obj.(*corev1.Service)
	spec := &svc.Spec
	setDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		c := spec.SessionAffinityConfig
		if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
	setDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		setDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if externallyAccessible(svc) {
		setDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if hasClusterIP(svc.Spec.Type) {
		setPointer(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		setPointer(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range svc.Status.LoadBalancer.Ingress {
			if in := &svc.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				setPointer(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// externallyAccessible says whether clients outside the cluster can reach a service.
func externallyAccessible(svc *corev1.Service) bool {
	t := svc.Spec.Type
	return t == corev1.ServiceTypeLoadBalancer || t == corev1.ServiceTypeNodePort ||
		t == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0
}

func hasClusterIP(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeClusterIP || hasNodePort(t)
}

func hasNodePort(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer
}

// needsHealthCheckPort says whether load balancers ask each node for its own endpoints of a service.
func needsHealthCheckPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func prepareService(obj api.Object) {
	svc := obj.(*corev1.Service)
	spec := &svc.Spec
	if spec.ClusterIP != "" && len(spec.ClusterIPs) == 0 {
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	defaultFamilyPolicy(svc)
}

// defaultFamilyPolicy lets a service have one address, except that one without selector and address leaves the choice to
// those who write its endpoints.
func defaultFamilyPolicy(svc *corev1.Service) {
	spec := &svc.Spec
	if spec.Type == corev1.ServiceTypeExternalName || spec.IPFamilyPolicy != nil {
		return
	}
	policy := corev1.IPFamilyPolicySingleStack
	switch {
	case spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0:
		policy = corev1.IPFamilyPolicyRequireDualStack
	case len(spec.ClusterIPs) == 2 || len(spec.IPFamilies) == 2:
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	spec.IPFamilyPolicy = &policy
}

func prepareServiceUpdate(obj, old api.Object) {
	svc, before := obj.(*corev1.Service), old.(*corev1.Service)
	svc.Status = before.Status
	syncClusterIPs(svc, before)
	keepAllocated(svc, before)
	dropByType(svc, before)
	defaultFamilyPolicy(svc)
}

// syncClusterIPs follows clients that know only one of clusterIP and clusterIPs.
func syncClusterIPs(svc, old *corev1.Service) {
	now, before := &svc.Spec, &old.Spec
	same := strings.Join(now.ClusterIPs, ",") == strings.Join(before.ClusterIPs, ",")
	switch {
	case now.ClusterIP == before.ClusterIP || !same:
		if now.ClusterIP != "" && len(now.ClusterIPs) == 0 && len(before.ClusterIPs) == 0 {
			now.ClusterIPs = []string{now.ClusterIP}
		}
	case now.ClusterIP == "":
		now.ClusterIPs = nil
	default:
		now.ClusterIPs = []string{now.ClusterIP}
	}
}

// keepAllocated fills in what the server has chosen when a client leaves it out, as one that writes a manifest again.
func keepAllocated(svc, old *corev1.Service) {
	now, before := &svc.Spec, &old.Spec
	if hasClusterIP(before.Type) && hasClusterIP(now.Type) {
		if now.ClusterIP == "" {
			now.ClusterIP = before.ClusterIP
		}
		if len(now.ClusterIPs) == 0 && now.ClusterIP == before.ClusterIP {
			now.ClusterIPs = before.ClusterIPs
		}
		if now.IPFamilyPolicy == nil {
			now.IPFamilyPolicy = before.IPFamilyPolicy
		}
		if len(now.IPFamilies) == 0 {
			now.IPFamilies = before.IPFamilies
		}
	}
	if hasNodePort(before.Type) && hasNodePort(now.Type) {
		type id struct {
			protocol corev1.Protocol
			port     int32
		}
		known, used := map[id]int32{}, map[int32]bool{}
		for _, port := range before.Ports {
			known[id{port.Protocol, port.Port}] = port.NodePort
		}
		for _, port := range now.Ports {
			used[port.NodePort] = true
		}
		for i := range now.Ports {
			port := &now.Ports[i]
			if n := known[id{port.Protocol, port.Port}]; port.NodePort == 0 && n != 0 && !used[n] {
				port.NodePort = n
			}
		}
	}
	if needsHealthCheckPort(svc) && needsHealthCheckPort(old) && now.HealthCheckNodePort == 0 {
		now.HealthCheckNodePort = before.HealthCheckNodePort
	}
}

// dropByType clears what the new type of a service has no use for, unless the client has set it in the same update.
func dropByType(svc, old *corev1.Service) {
	now, before := &svc.Spec, &old.Spec
	if hasClusterIP(before.Type) && !hasClusterIP(now.Type) {
		if now.ClusterIP == before.ClusterIP {
			now.ClusterIP, now.ClusterIPs = "", nil
			now.IPFamilies, now.IPFamilyPolicy = nil, nil
		}
		now.InternalTrafficPolicy = nil
	}
	if hasNodePort(before.Type) && !hasNodePort(now.Type) {
		same := len(now.Ports) == len(before.Ports)
		for i := range now.Ports {
			same = same && now.Ports[i].NodePort == before.Ports[i].NodePort
		}
		if same {
			for i := range now.Ports {
				now.Ports[i].NodePort = 0
			}
		}
	}
	if needsHealthCheckPort(old) && !needsHealthCheckPort(svc) && now.HealthCheckNodePort == before.HealthCheckNodePort {
		now.HealthCheckNodePort = 0
	}
	if externallyAccessible(old) && !externallyAccessible(svc) && now.ExternalTrafficPolicy == before.ExternalTrafficPolicy {
		now.ExternalTrafficPolicy = ""
	}
	if before.Type == corev1.ServiceTypeLoadBalancer && now.Type != before.Type {
		if a, b := now.AllocateLoadBalancerNodePorts, before.AllocateLoadBalancerNodePorts; a != nil && b != nil && *a == *b {
			now.AllocateLoadBalancerNodePorts = nil
		}
		if a, b := now.LoadBalancerClass, before.LoadBalancerClass; a != nil && b != nil && *a == *b {
			now.LoadBalancerClass = nil
		}
		svc.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	if before.Type == corev1.ServiceTypeExternalName && now.Type != before.Type && now.ExternalName == before.ExternalName {
		now.ExternalName = ""
	}
}

func serviceCells(obj api.Object, now time.Time) []any {
	svc := obj.(*corev1.Service)
	ip := none
	if len(svc.Spec.ClusterIPs) > 0 {
		ip = svc.Spec.ClusterIPs[0]
	} else if svc.Spec.ClusterIP != "" {
		ip = svc.Spec.ClusterIP
	}
	return []any{svc.Name, string(svc.Spec.Type), ip, externalIP(svc), servicePorts(svc.Spec.Ports),
		api.Age(svc.CreationTimestamp, now), api.LabelSet(svc.Spec.Selector)}
}

func externalIP(svc *corev1.Service) string {
	switch svc.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort:
		return orNone(strings.Join(svc.Spec.ExternalIPs, ","))
	case corev1.ServiceTypeLoadBalancer:
		var ips []string
		for _, in := range svc.Status.LoadBalancer.Ingress {
			if in.IP != "" {
				ips = append(ips, in.IP)
			} else if in.Hostname != "" {
				ips = append(ips, in.Hostname)
			}
		}
		if ips = append(ips, svc.Spec.ExternalIPs...); len(ips) > 0 {
			return strings.Join(ips, ",")
		}
		return "<pending>"
	case corev1.ServiceTypeExternalName:
		return svc.Spec.ExternalName
	}
	return "<unknown>"
}

func servicePorts(ports []corev1.ServicePort) string {
	var out []string
	for _, p := range ports {
		if p.NodePort > 0 {
			out = append(out, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return orNone(strings.Join(out, ","))
}

func hostPort(ip string, port int32) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }
