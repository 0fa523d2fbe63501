package proxy

import (
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/internal/netns"
)

// hostPod runs with an address and host ports.
func hostPod(name string, ips []string, ports ...corev1.ContainerPort) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Ports: ports}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

func podOwner(p *corev1.Pod) owner {
	return owner{true, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}}
}

func hostUnit(p *corev1.Pod) *unit {
	return buildHostPorts(podOwner(p).NamespacedName, hostPorts(p))
}

func TestHostPorts(t *testing.T) {
	tests := []struct {
		name   string
		ips    []string
		port   corev1.ContainerPort
		change func(*corev1.Pod)
		want   []string
	}{
		{name: "any address", ips: []string{"10.244.0.5"}, port: corev1.ContainerPort{HostPort: 80, ContainerPort: 8080},
			want: []string{"tcp 0.0.0.0:80 10.244.0.5:8080"}},
		{name: "both families", ips: []string{"10.244.0.5", "fd00::5"}, port: corev1.ContainerPort{HostPort: 80, ContainerPort: 8080, Protocol: corev1.ProtocolUDP},
			want: []string{"udp 0.0.0.0:80 10.244.0.5:8080", "udp [::]:80 [fd00::5]:8080"}},
		{name: "one address", ips: []string{"10.244.0.5", "fd00::5"}, port: corev1.ContainerPort{HostPort: 80, HostIP: "127.0.0.1", ContainerPort: 8080, Protocol: corev1.ProtocolSCTP},
			want: []string{"sctp 127.0.0.1:80 10.244.0.5:8080"}},
		{name: "any address of a family", ips: []string{"10.244.0.5", "fd00::5"}, port: corev1.ContainerPort{HostPort: 80, HostIP: "::", ContainerPort: 8080},
			want: []string{"tcp [::]:80 [fd00::5]:8080"}},
		{name: "no host port", ips: []string{"10.244.0.5"}, port: corev1.ContainerPort{ContainerPort: 8080}},
		{name: "no address yet", port: corev1.ContainerPort{HostPort: 80, ContainerPort: 8080}},
		{name: "on the host's network", ips: []string{"192.0.2.10"}, port: corev1.ContainerPort{HostPort: 80, ContainerPort: 80},
			change: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		{name: "over", ips: []string{"10.244.0.5"}, port: corev1.ContainerPort{HostPort: 80, ContainerPort: 80},
			change: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		{name: "of a sidecar", ips: []string{"10.244.0.5"}, port: corev1.ContainerPort{HostPort: 80, ContainerPort: 8080},
			change: func(p *corev1.Pod) { p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, nil },
			want:   []string{"tcp 0.0.0.0:80 10.244.0.5:8080"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := hostPod("p", tt.ips, tt.port)
			if tt.change != nil {
				tt.change(p)
			}
			var got []string
			for _, h := range hostPorts(p) {
				got = append(got, strings.Join([]string{h.proto.String(), h.at.String(), h.to.String()}, " "))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("host ports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostPortRules(t *testing.T) {
	p := hostPod("p", []string{"10.244.0.5", "fd00::5"},
		corev1.ContainerPort{HostPort: 80, ContainerPort: 8080}, corev1.ContainerPort{HostPort: 53, HostIP: "192.0.2.10", ContainerPort: 53, Protocol: corev1.ProtocolUDP})
	s, c := newState(), newChange()
	s.replace(c, podOwner(p), hostUnit(p))
	golden(t, "hostports", c.transaction().String())
	c = newChange()
	s.replace(c, podOwner(p), nil)
	golden(t, "hostports-delete", c.transaction().String())
}

// Pods in networks of their own are reached through the ports of their node by everybody.
func TestHostPortsInKernel(t *testing.T) {
	node, h := emptyNamespace(t)
	pods := bridge(t, h, "pods0", "10.244.1.1/24")
	wire := bridge(t, h, "node0", "192.0.2.10/24")
	for _, s := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/pods0/route_localnet", "net/bridge/bridge-nf-call-iptables"} {
		switch err := netns.Sysctl(node, s, "1"); {
		case errors.Is(err, fs.ErrNotExist):
			t.Skip("this kernel does not show bridged packets to the filter")
		case err != nil:
			t.Fatal(err)
		}
	}
	a := neighbour(t, h, pods, "10.244.1.5/24", "10.244.1.1")
	b := neighbour(t, h, pods, "10.244.1.6/24", "10.244.1.1")
	outside := neighbour(t, h, wire, "192.0.2.1/24", "192.0.2.10")
	for _, network := range []string{"tcp", "udp"} {
		serve(t, a, network, "10.244.1.5:8080", "a")
		serve(t, b, network, "10.244.1.6:8080", "b")
		serve(t, outside, network, "192.0.2.1:8080", "outside")
	}
	port := func(protocol corev1.Protocol, ip string, number int32) corev1.ContainerPort {
		return corev1.ContainerPort{HostPort: number, HostIP: ip, Protocol: protocol, ContainerPort: 8080}
	}
	first := hostPod("a", []string{"10.244.1.5"}, port(corev1.ProtocolTCP, "", 80), port(corev1.ProtocolUDP, "", 80),
		port(corev1.ProtocolTCP, "192.0.2.10", 54323), port(corev1.ProtocolSCTP, "", 54323))
	second := hostPod("b", []string{"10.244.1.6"}, port(corev1.ProtocolTCP, "127.0.0.1", 54323), port(corev1.ProtocolUDP, "192.0.2.10", 54323))
	web := service("ns", "web", "10.96.0.20", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	})
	slice := endpointSlice(web, "10.244.1.5", "192.0.2.1")
	slice.Endpoints[0].NodeName = ptr.To("node")
	nowhere := service("ns", "nowhere", "10.96.0.21", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30081
	})

	rules := NewNetlink("proa", node)
	s, c := newState(), newChange()
	s.replace(c, podOwner(first), hostUnit(first))
	s.replace(c, podOwner(second), hostUnit(second))
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	s.replace(c, nameOf(web), build(ports(web, []*discoveryv1.EndpointSlice{slice}, "node", ""), cidrs))
	s.replace(c, nameOf(nowhere), build(ports(nowhere, nil, "node", ""), cidrs))
	if err := rules.Apply(s.reset()); err != nil {
		t.Fatal(err)
	}
	type question struct{ who, network, from, address, want string }
	check := func(list ...question) {
		t.Helper()
		places := map[string]string{"node": node, "a": a, "b": b, "outside": outside}
		for _, q := range list {
			for range 8 { // endpoints are chosen at random
				if got := ask(places[q.who], q.network, q.from, q.address); got != q.want {
					t.Errorf("%s asks %s %s from %q: %s, want %s", q.who, q.network, q.address, q.from, got, q.want)
					break
				}
			}
		}
	}
	// The kernel may take a second until new ports of bridges forward.
	for range 10 {
		if ask(outside, "tcp", "", "192.0.2.10:80") == "a" && ask(node, "tcp", "", "10.244.1.6:8080") == "b" {
			break
		}
	}
	check(
		question{"outside", "tcp", "", "192.0.2.10:80", "a"},
		question{"outside", "udp", "", "192.0.2.10:80", "a"},
		question{"node", "tcp", "", "192.0.2.10:80", "a"},
		question{"node", "udp", "", "192.0.2.10:80", "a"},
		question{"node", "tcp", "", "10.244.1.1:80", "a"},
		question{"node", "tcp", "", "127.0.0.1:80", "a"},
		question{"node", "udp", "", "127.0.0.1:80", "a"},
		question{"b", "tcp", "", "192.0.2.10:80", "a"},
		question{"b", "udp", "", "192.0.2.10:80", "a"},
		question{"a", "tcp", "", "192.0.2.10:80", "a"},
		question{"a", "udp", "", "192.0.2.10:80", "a"},
		// One port on different addresses and protocols.
		question{"node", "tcp", "", "127.0.0.1:54323", "b"},
		question{"node", "tcp", "192.0.2.10", "127.0.0.1:54323", "b"},
		question{"node", "tcp", "", "192.0.2.10:54323", "a"},
		question{"outside", "tcp", "", "192.0.2.10:54323", "a"},
		question{"outside", "udp", "", "192.0.2.10:54323", "b"},
		question{"outside", "tcp", "", "192.0.2.10:81", "refused"},
		// Node ports on loopback, where packets to the other endpoint could not leave.
		question{"node", "tcp", "", "127.0.0.1:30080", "a"},
		question{"node", "tcp", "", "127.0.0.1:30081", "refused"},
	)
	c = newChange()
	s.replace(c, podOwner(first), nil)
	if err := rules.Apply(c.transaction()); err != nil {
		t.Fatal(err)
	}
	check(
		question{"outside", "tcp", "", "192.0.2.10:80", "refused"},
		question{"node", "tcp", "", "127.0.0.1:80", "refused"},
		question{"outside", "udp", "", "192.0.2.10:54323", "b"},
	)

	// A client that goes on sending datagrams follows its port: from a pod that is gone to the next, and from where nothing
	// answered.
	client := dial(t, outside, "192.0.2.10:5353")
	move := func(next *corev1.Pod) {
		t.Helper()
		o := owner{true, types.NamespacedName{Namespace: "ns", Name: "moving"}}
		flows := stale(s.units[o], buildHostPorts(o.NamespacedName, hostPorts(next)))
		c := newChange()
		s.replace(c, o, buildHostPorts(o.NamespacedName, hostPorts(next)))
		if err := rules.Apply(c.transaction()); err != nil {
			t.Fatal(err)
		}
		if err := (conntrack{node}).clean(flows); err != nil {
			t.Fatal(err)
		}
	}
	if got := exchange(client); got != "refused" {
		t.Errorf("a port without a pod answers %s", got)
	}
	move(hostPod("moving", []string{"10.244.1.5"}, port(corev1.ProtocolUDP, "", 5353)))
	if got := exchange(client); got != "a" {
		t.Errorf("the first pod of a port is not found by a client that was there before: %s", got)
	}
	move(hostPod("moving", []string{"10.244.1.6"}, port(corev1.ProtocolUDP, "", 5353)))
	if got := exchange(client); got != "b" {
		t.Errorf("the next pod of a port is not found by a client of the one before: %s", got)
	}
}
