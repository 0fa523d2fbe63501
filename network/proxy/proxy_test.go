package proxy

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var update = flag.Bool("update", false, "write the golden files")

func gettid() int { return unix.Gettid() }

func nameOf(s *corev1.Service) owner {
	return owner{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}}
}

// service with one TCP port, 80 to 8080.
func service(namespace, name, ip string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// endpointSlice with ready endpoints on "other".
func endpointSlice(s *corev1.Service, ips ...string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, ip := range ips {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{ip}, NodeName: ptr.To("other"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".nft")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("rules differ from %s (-want +got):\n%s", path, diff)
	}
}

var podCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}

func TestRules(t *testing.T) {
	balancer := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.Ports[0].NodePort = 30080
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	}
	local := func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	tests := []struct {
		name   string
		change func(*corev1.Service)
		here   bool // the second endpoint is on this node
		none   bool
	}{
		{name: "clusterip"},
		{name: "empty", none: true, change: balancer},
		{name: "balancer", change: func(s *corev1.Service) {
			balancer(s)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "203.0.113.9/32"}
		}},
		{name: "external-local", here: true, change: func(s *corev1.Service) { balancer(s); local(s) }},
		{name: "external-local-elsewhere", change: func(s *corev1.Service) { balancer(s); local(s) }},
		{name: "internal-local", here: true, change: func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}},
		{name: "internal-local-elsewhere", change: func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		}},
		{name: "affinity", change: func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service("ns", "web", "10.96.0.20", tt.change)
			slice := endpointSlice(svc, "10.244.0.5", "10.244.1.6")
			if tt.here {
				slice.Endpoints[1].NodeName = ptr.To("node")
			}
			if tt.none {
				slice.Endpoints = nil
			}
			s, c := newState(), newChange()
			s.replace(c, nameOf(svc), build(ports(svc, []*discoveryv1.EndpointSlice{slice}, "node", ""), podCIDRs))
			golden(t, tt.name, c.transaction().String())
		})
	}
	t.Run("base", func(t *testing.T) { golden(t, "base", newState().reset().String()) })
	t.Run("ipv6", func(t *testing.T) {
		svc := service("ns", "web", "fd00:10:96::20", nil)
		slice := endpointSlice(svc, "fd00:10:244::5")
		s, c := newState(), newChange()
		s.replace(c, nameOf(svc), build(ports(svc, []*discoveryv1.EndpointSlice{slice}, "node", ""), podCIDRs))
		golden(t, "ipv6", c.transaction().String())
	})
}

// A change of one endpoint changes what belongs to its Service, and nothing else.
func TestChangeOfOneEndpoint(t *testing.T) {
	s, c := newState(), newChange()
	svc := service("ns", "web", "10.96.0.20", nil)
	put := func(c *change, svc *corev1.Service, ips ...string) {
		s.replace(c, nameOf(svc), build(ports(svc, []*discoveryv1.EndpointSlice{endpointSlice(svc, ips...)}, "node", ""), podCIDRs))
	}
	put(c, svc, "10.244.0.5", "10.244.1.6")
	for i := range 50 {
		put(c, service("ns", "other"+string(rune('a'+i)), netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}).String(), nil), "10.244.2.2")
	}
	c = newChange()
	put(c, svc, "10.244.0.5", "10.244.1.7")
	golden(t, "change", c.transaction().String())
	c = newChange()
	put(c, svc, "10.244.0.5", "10.244.1.7")
	if got := c.transaction().String(); got != "" {
		t.Errorf("no change makes steps:\n%s", got)
	}
	c = newChange()
	s.replace(c, nameOf(svc), nil)
	golden(t, "delete", c.transaction().String())
}

// Two Services want one address: the first has it until it goes.
func TestSharedExternalIP(t *testing.T) {
	s := newState()
	shared := func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"203.0.113.1"} }
	a, b := service("ns", "a", "10.96.0.1", shared), service("ns", "b", "10.96.0.2", shared)
	put := func(c *change, svc *corev1.Service) {
		s.replace(c, nameOf(svc), build(ports(svc, []*discoveryv1.EndpointSlice{endpointSlice(svc, "10.244.0.5")}, "node", ""), podCIDRs))
	}
	count := func(c *change, verb string) int {
		return strings.Count(c.transaction().String(), "203.0.113.1 . tcp . 80") * strings.Count(c.transaction().String(), verb+" element service-ips4")
	}
	c := newChange()
	put(c, a)
	put(c, b)
	if n := count(c, "add"); n != 1 {
		t.Errorf("the address is added %d times, want 1:\n%s", n, c.transaction())
	}
	c = newChange()
	s.replace(c, nameOf(a), nil)
	if !c.freed[nameOf(b)] {
		t.Error("the waiting Service does not learn that the address is free")
	}
	c = newChange()
	put(c, b)
	if n := count(c, "add"); n != 1 {
		t.Errorf("the waiting Service gets the address %d times, want 1:\n%s", n, c.transaction())
	}
}

func TestEndpointChoice(t *testing.T) {
	const port = ":8080"
	type end struct {
		ip                          string
		ready, serving, terminating bool
		zone, node                  string
	}
	tests := []struct {
		name           string
		ends           []end
		annotations    map[string]string
		cluster, local []string
		ready          int // on this node
	}{
		{"ready only", []end{{ip: "10.0.0.1", ready: true}, {ip: "10.0.0.2"}}, nil, []string{"10.0.0.1"}, nil, 0},
		{"ready here", []end{
			{ip: "10.0.0.1", ready: true}, {ip: "10.0.0.2", ready: true, node: "node"}, {ip: "10.0.0.3", node: "node"},
		}, nil, []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.2"}, 1},
		{"terminating as the last resort", []end{
			{ip: "10.0.0.1", serving: true, terminating: true}, {ip: "10.0.0.2", terminating: true}, {ip: "10.0.0.3"},
		}, nil, []string{"10.0.0.1"}, nil, 0},
		{"terminating here while others are ready", []end{
			{ip: "10.0.0.1", serving: true, terminating: true, node: "node"}, {ip: "10.0.0.2", ready: true},
		}, nil, []string{"10.0.0.2"}, []string{"10.0.0.1"}, 0},
		{"hints", []end{{ip: "10.0.0.1", ready: true, zone: "z1"}, {ip: "10.0.0.2", ready: true, zone: "z2"}},
			map[string]string{corev1.AnnotationTopologyMode: "Auto"}, []string{"10.0.0.2"}, nil, 0},
		{"hints without the annotation", []end{{ip: "10.0.0.1", ready: true, zone: "z1"}, {ip: "10.0.0.2", ready: true, zone: "z2"}},
			nil, []string{"10.0.0.1", "10.0.0.2"}, nil, 0},
		{"a missing hint", []end{{ip: "10.0.0.1", ready: true}, {ip: "10.0.0.2", ready: true, zone: "z2"}},
			map[string]string{corev1.AnnotationTopologyMode: "Auto"}, []string{"10.0.0.1", "10.0.0.2"}, nil, 0},
		{"no hint for this zone", []end{{ip: "10.0.0.1", ready: true, zone: "z1"}},
			map[string]string{corev1.AnnotationTopologyMode: "Auto"}, []string{"10.0.0.1"}, nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := service("ns", "web", "10.96.0.20", func(s *corev1.Service) { s.Annotations = tt.annotations })
			slice := endpointSlice(svc)
			for _, e := range tt.ends {
				out := discoveryv1.Endpoint{Addresses: []string{e.ip}, Conditions: discoveryv1.EndpointConditions{
					Ready: &e.ready, Serving: ptr.To(e.ready || e.serving), Terminating: &e.terminating,
				}, NodeName: &e.node}
				if e.zone != "" {
					out.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: e.zone}}}
				}
				slice.Endpoints = append(slice.Endpoints, out)
			}
			list := ports(svc, []*discoveryv1.EndpointSlice{slice}, "node", "z2")
			if got := readyHere(list); got != tt.ready {
				t.Errorf("balancers hear of %d endpoints here, want %d", got, tt.ready)
			}
			p := list[0]
			for _, list := range []struct {
				name string
				got  []netip.AddrPort
				want []string
			}{{"cluster", p.cluster, tt.cluster}, {"local", p.local, tt.local}} {
				var got []string
				for _, a := range list.got {
					got = append(got, strings.TrimSuffix(a.String(), port))
				}
				if diff := cmp.Diff(list.want, got); diff != "" {
					t.Errorf("%s endpoints (-want +got):\n%s", list.name, diff)
				}
			}
		})
	}
}
