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

// emptyNamespace makes a network namespace with a loopback interface and returns its path and a handle on it.
func emptyNamespace(t *testing.T) (string, *netlink.Handle) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	paths := make(chan string)
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
		paths <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), gettid())
		<-done
	}()
	var path string
	select {
	case path = <-paths:
	case err := <-failed:
		t.Skipf("network namespaces are not available: %v", err)
	}
	ns, err := vnetns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	up(t, h, "lo")
	return path, h
}

// up starts an interface and gives it addresses.
func up(t *testing.T, h *netlink.Handle, name string, addresses ...string) netlink.Link {
	t.Helper()
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	for _, a := range addresses {
		if err == nil {
			var addr *netlink.Addr
			if addr, err = netlink.ParseAddr(a); err == nil {
				err = h.AddrAdd(link, addr)
			}
		}
	}
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
	return link
}

// bridge makes one with addresses.
func bridge(t *testing.T, h *netlink.Handle, name string, addresses ...string) netlink.Link {
	t.Helper()
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
		t.Fatal(err)
	}
	return up(t, h, name, addresses...)
}

// route adds the default route.
func route(t *testing.T, h *netlink.Handle, link netlink.Link, gateway string) {
	t.Helper()
	if err := h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
		t.Fatalf("default route: %v", err)
	}
}

// neighbour makes a namespace on a bridge, as a pod is.
func neighbour(t *testing.T, h *netlink.Handle, bridge netlink.Link, address, gateway string) string {
	t.Helper()
	path, inside := emptyNamespace(t)
	ns, err := vnetns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	name := "v" + strings.NewReplacer(".", "-", "/", "-").Replace(address)
	attrs := netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(ns)}); err != nil {
		t.Fatal(err)
	}
	if err := h.LinkSetHairpin(up(t, h, name), true); err != nil {
		t.Fatal(err)
	}
	route(t, inside, up(t, inside, "eth0", address), gateway)
	return path
}

// namespace is that of a node with a pod network on which two pods would have 10.244.0.5 and 10.244.0.6.
func namespace(t *testing.T) string {
	t.Helper()
	path, h := emptyNamespace(t)
	link := bridge(t, h, "node0", "192.0.2.10/24", "10.244.0.5/32", "10.244.0.6/32")
	route(t, h, link, "192.0.2.1")
	return path
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

// dial opens a socket for datagrams to an address.
func dial(t *testing.T, ns, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	err := netns.Do(ns, func() (err error) {
		conn, err = net.Dial("udp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exchange sends a datagram and returns the answer, or the error.
func exchange(conn net.Conn) string {
	conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	fmt.Fprintln(conn, "who")
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	if err != nil {
		return errorText(err)
	}
	return strings.TrimSpace(string(buf[:n]))
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
