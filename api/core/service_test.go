package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func goodService(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, c := range change {
		c(svc)
	}
	defaultService(svc)
	return svc
}

func TestServiceDefaults(t *testing.T) {
	svc := goodService(func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	want := corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Type: corev1.ServiceTypeLoadBalancer,
		Ports:                         []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}},
		SessionAffinity:               corev1.ServiceAffinityClientIP,
		SessionAffinityConfig:         &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}},
		ExternalTrafficPolicy:         corev1.ServiceExternalTrafficPolicyCluster,
		InternalTrafficPolicy:         new(corev1.ServiceInternalTrafficPolicyCluster),
		AllocateLoadBalancerNodePorts: new(true),
	}
	if diff := cmp.Diff(want, svc.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	headless := goodService(func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Selector = "None", nil })
	prepareService(headless)
	if *headless.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack || headless.Spec.ClusterIPs[0] != "None" {
		t.Errorf("headless: %+v", headless.Spec)
	}
}

func TestValidateService(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*corev1.Service)
		want   []string
	}{
		{"plain", func(*corev1.Service) {}, nil},
		{"no ports", func(s *corev1.Service) { s.Spec.Ports = nil }, []string{"Required spec.ports"}},
		{"headless without ports", func(s *corev1.Service) {
			s.Spec.Ports, s.Spec.ClusterIP, s.Spec.ClusterIPs = nil, "None", []string{"None"}
		}, nil},
		{"headless node port", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeNodePort, "None", []string{"None"}
		}, []string{"Invalid spec.clusterIPs[0]"}},
		{"unnamed ports", func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 1}, {Port: 1, Name: "a"}} },
			[]string{"Duplicate spec.ports[1]", "Required spec.ports[0].name"}},
		{"port range", func(s *corev1.Service) {
			s.Spec.Ports[0] = corev1.ServicePort{Port: 0, TargetPort: intstr.FromString("A_b")}
		},
			[]string{"Invalid spec.ports[0].port", "Invalid spec.ports[0].targetPort"}},
		{"node port of a cluster address", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 }, []string{"Forbidden spec.ports[0].nodePort"}},
		{"external name", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.b."}
		}, nil},
		{"external name with address", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ClusterIPs: []string{"None"}}
		}, []string{"Forbidden spec.clusterIPs", "Required spec.externalName"}},
		{"type", func(s *corev1.Service) { s.Spec.Type = "Magic" }, []string{"NotSupported spec.type"}},
		{"affinity", func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(90000))}}
		}, []string{"Invalid spec.sessionAffinityConfig.clientIP.timeoutSeconds"}},
		{"families", func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1"}
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, "IPv5"}
		}, []string{"Invalid spec.clusterIPs[0]", "NotSupported spec.ipFamilies[1]"}},
		{"two addresses of a family", func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.0.0.1", []string{"10.0.0.1", "10.0.0.2"}
		}, []string{"Invalid spec.clusterIPs"}},
		{"external address", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.0.0.1", "x"} },
			[]string{"Invalid spec.externalIPs[0]", "Invalid spec.externalIPs[1]"}},
		{"balancer only", func(s *corev1.Service) {
			s.Spec.LoadBalancerClass, s.Spec.LoadBalancerSourceRanges = new("example.com/lb"), []string{"10.0.0.0/8"}
			s.Spec.AllocateLoadBalancerNodePorts, s.Spec.HealthCheckNodePort = new(true), 30000
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []string{"Forbidden spec.LoadBalancerSourceRanges", "Forbidden spec.allocateLoadBalancerNodePorts", "Forbidden spec.loadBalancerClass",
			"Invalid spec.externalTrafficPolicy", "Invalid spec.healthCheckNodePort"}},
		{"distribution", func(s *corev1.Service) { s.Spec.TrafficDistribution = new("") }, []string{"NotSupported spec.trafficDistribution"}},
		{"close", func(s *corev1.Service) { s.Spec.TrafficDistribution = new("PreferClose") }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == nil {
				tc.want = []string{}
			}
			if diff := cmp.Diff(tc.want, short(validateService(goodService(tc.change)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceUpdate(t *testing.T) {
	old := goodService(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeNodePort, "10.0.0.1", []string{"10.0.0.1"}
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = []corev1.IPFamily{corev1.IPv4Protocol}, new(corev1.IPFamilyPolicySingleStack)
		s.Spec.Ports[0].NodePort = 30000
	})
	again := goodService(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	prepareServiceUpdate(again, old)
	if diff := cmp.Diff(old.Spec, again.Spec); diff != "" {
		t.Errorf("the manifest applied again (-want +got):\n%s", diff)
	}
	if errs := validateServiceUpdate(again, old); len(errs) != 0 {
		t.Errorf("the manifest applied again: %v", errs)
	}
	moved := old.DeepCopy()
	moved.Spec.ClusterIP = "10.0.0.2"
	prepareServiceUpdate(moved, old)
	if got := short(validateServiceUpdate(moved, old)); len(got) != 1 || got[0] != "Invalid spec.clusterIPs[0]" {
		t.Errorf("moved: %v", got)
	}
	inner := old.DeepCopy()
	inner.Spec.Type = corev1.ServiceTypeClusterIP
	prepareServiceUpdate(inner, old)
	if inner.Spec.Ports[0].NodePort != 0 || inner.Spec.ExternalTrafficPolicy != "" || inner.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("to ClusterIP: %+v", inner.Spec)
	}
	named := old.DeepCopy()
	named.Spec.Type, named.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.b"
	prepareServiceUpdate(named, old)
	if errs := validateServiceUpdate(named, old); len(errs) != 0 || named.Spec.ClusterIP != "" {
		t.Errorf("to ExternalName: %v, %+v", errs, named.Spec)
	}
}

func TestServiceCells(t *testing.T) {
	now := time.Now()
	svc := goodService(func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		s.Spec.Type, s.Spec.ClusterIPs = corev1.ServiceTypeLoadBalancer, []string{"10.0.0.1"}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053})
	})
	want := []any{"web", "LoadBalancer", "10.0.0.1", "<pending>", "80/TCP,53:30053/UDP", "60m", "app=web"}
	if diff := cmp.Diff(want, serviceCells(svc, now)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}
