package proxy

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"proa/internal/netns"
)

// namespace makes a network namespace with a loopback interface, a bridge and routes, and returns its path.
func namespace(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	path := make(chan string)
	failed := make(chan error)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ns, err := vnetns.New()
		if err != nil {
			failed <- err
			return
		}
		defer ns.Close()
		for _, link := range []struct{ name, addr string }{{"lo", "127.0.0.1/8"}, {"node0", "192.0.2.10/24"}} {
			if link.name != "lo" {
				if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: link.name}}); err != nil {
					failed <- err
					return
				}
			}
			l, err := netlink.LinkByName(link.name)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err == nil && link.name != "lo" {
				for _, a := range []string{link.addr, "10.244.0.5/32", "10.244.0.6/32"} {
					addr, _ := netlink.ParseAddr(a)
					if err == nil {
						err = netlink.AddrAdd(l, addr)
					}
				}
				if err == nil {
					err = netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.IPv4(192, 0, 2, 1)})
				}
			}
			if err != nil {
				failed <- err
				return
			}
		}
		path <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), gettid())
		<-done
	}()
	select {
	case p := <-path:
		return p
	case err := <-failed:
		t.Skipf("network namespaces are not available: %v", err)
		return ""
	}
}

// serve answers every line with the name on an address.
func serve(t *testing.T, ns, network, address, name string) {
	t.Helper()
	if network == "udp" {
		conn, err := netns.ListenPacket(t.Context(), ns, network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := conn.ReadFrom(buf)
				if err != nil {
					return
				}
				conn.WriteTo([]byte(name+"\n"), from)
			}
		}()
		return
	}
	l, err := netns.Listen(t.Context(), ns, network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, name)
			conn.Close()
		}
	}()
}

// ask returns what answers at an address, or the error.
func ask(ns, network, from, address string) string {
	var conn net.Conn
	err := netns.Do(ns, func() (err error) {
		dialer := net.Dialer{Timeout: 300 * time.Millisecond}
		if from != "" {
			switch network {
			case "udp":
				dialer.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
			default:
				dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
			}
		}
		conn, err = dialer.Dial(network, address)
		return err
	})
	if err != nil {
		return errorText(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	if network == "udp" {
		fmt.Fprintln(conn, "who")
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return errorText(err)
	}
	return strings.TrimSpace(line)
}

func errorText(err error) string {
	switch {
	case strings.Contains(err.Error(), "refused"):
		return "refused"
	case strings.Contains(err.Error(), "timeout"):
		return "timeout"
	}
	return err.Error()
}

func TestKernel(t *testing.T) {
	ns := namespace(t)
	rules := NewNetlink("proa", ns)
	for _, network := range []string{"tcp", "udp"} {
		serve(t, ns, network, "10.244.0.5:8080", "a")
		serve(t, ns, network, "10.244.0.6:8080", "b")
	}
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	web := service("default", "web", "10.96.0.20", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.ExternalIPs = []string{"203.0.113.7"}
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "t", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080},
			{Name: "u", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30080},
		}
	})
	slice := endpointSlice(web, "10.244.0.5", "10.244.0.6")
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: ptr.To("t"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)},
		{Name: ptr.To("u"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](8080)},
	}
	empty := service("default", "empty", "10.96.0.21", nil)
	sticky := service("default", "sticky", "10.96.0.22", func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
	stickySlice := endpointSlice(sticky, "10.244.0.5", "10.244.0.6")

	s := newState()
	put := func(c *change, svc *corev1.Service, list ...*discoveryv1.EndpointSlice) {
		s.replace(c, nameOf(svc), build(ports(svc, list, "node", ""), pods))
	}
	c := newChange()
	put(c, web, slice)
	put(c, empty)
	put(c, sticky, stickySlice)
	apply := func(tr Transaction) {
		t.Helper()
		if err := rules.Apply(tr); err != nil {
			t.Fatalf("%v\n%s", err, tr)
		}
	}
	apply(s.reset())
	apply(s.reset()) // over what exists

	answers := func(network, from, address string, n int) map[string]bool {
		out := map[string]bool{}
		for range n {
			out[ask(ns, network, from, address)] = true
		}
		return out
	}
	check := func(network, from, address string, want ...string) {
		t.Helper()
		got := answers(network, from, address, 24)
		ok := len(got) == len(want)
		for _, w := range want {
			ok = ok && got[w]
		}
		if !ok {
			out, _ := exec.Command("nsenter", "--net="+ns, "nft", "list", "ruleset").CombinedOutput()
			t.Errorf("%s %s from %q answers %v, want %v\n%s", network, address, from, got, want, out)
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		check(network, "", "10.96.0.20:80", "a", "b")
		check(network, "10.244.0.5", "10.96.0.20:80", "a", "b") // also itself
		check(network, "", "203.0.113.7:80", "a", "b")
		check(network, "", "192.0.2.10:30080", "a", "b")
	}
	check("tcp", "", "10.96.0.21:80", "refused")
	check("tcp", "", "10.96.0.20:81", "refused")
	first := ask(ns, "tcp", "192.0.2.10", "10.96.0.22:80")
	check("tcp", "192.0.2.10", "10.96.0.22:80", first)

	// One endpoint goes, then all, then the Service itself.
	step := func(svc *corev1.Service, list ...*discoveryv1.EndpointSlice) Transaction {
		c := newChange()
		if svc.DeletionTimestamp != nil {
			s.replace(c, nameOf(svc), nil)
		} else {
			put(c, svc, list...)
		}
		return c.transaction()
	}
	fewer := slice.DeepCopy()
	fewer.Endpoints = fewer.Endpoints[1:]
	apply(step(web, fewer))
	check("tcp", "", "10.96.0.20:80", "b")
	check("udp", "", "192.0.2.10:30080", "b")
	stickyFewer := stickySlice.DeepCopy()
	stickyFewer.Endpoints = stickyFewer.Endpoints[1:]
	apply(step(sticky, stickyFewer))
	check("tcp", "192.0.2.10", "10.96.0.22:80", "b")
	apply(step(web))
	check("tcp", "", "192.0.2.10:30080", "refused")
	apply(step(web, slice))
	check("tcp", "", "10.96.0.20:80", "a", "b")
	many := slice.DeepCopy()
	for i := range 600 {
		e := *many.Endpoints[0].DeepCopy()
		e.Addresses = []string{fmt.Sprintf("10.245.%d.%d", i/250, i%250+1)}
		many.Endpoints = append(many.Endpoints, e)
	}
	apply(step(web, many))
	apply(step(web, slice))
	check("tcp", "", "10.96.0.20:80", "a", "b")
	now := web.DeepCopy()
	now.DeletionTimestamp = ptr.To(web.CreationTimestamp)
	apply(step(now))
	if err := (conntrack{namespace: ns}).clean([]flow{{at: netip.MustParseAddrPort("10.96.0.20:80"), proto: UDP}}); err != nil {
		t.Errorf("clean flows: %v", err)
	}
	if err := rules.Remove(); err != nil {
		t.Error(err)
	}
	if err := rules.Remove(); err != nil {
		t.Errorf("removing twice: %v", err)
	}
}
