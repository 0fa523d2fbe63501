package podnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/internal/netns"
)

// plugins makes a folder with empty programs of these names.
func plugins(t *testing.T, names ...string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return []string{dir}
}

func TestConf(t *testing.T) {
	c := Config{
		NodeName: "n", NodeIP: netip.MustParseAddr("192.0.2.1"), ConfDir: t.TempDir(), DataDir: "/data",
		PluginDirs: plugins(t, "bridge", "host-local", "bandwidth"),
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	own := []netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}
	if err := n.writeConf(own, 1400); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(c.ConfDir, "10-proa.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	const text = `{"cniVersion": "1.0.0", "name": "proa", "plugins": [
		{"type": "bridge", "bridge": "proa0", "isGateway": true, "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true,
		 "mtu": 1400, "ipam": {"type": "host-local", "dataDir": "/data/addresses",
		 "ranges": [[{"subnet": "10.244.3.0/24", "gateway": "10.244.3.1"}]]}},
		{"type": "bandwidth", "capabilities": {"bandwidth": true}}]}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	n.config.PluginDirs = plugins(t, "bridge")
	if _, err := n.conf(own, 1400); err == nil || !strings.Contains(err.Error(), "containernetworking-plugins") {
		t.Errorf("a missing plugin gives %v, want the name of the package to install", err)
	}
}

// Three nodes on one machine: two beside each other, and one of another subnet that only a tunnel reaches.
func TestNodes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	// The machine of the test is a namespace of its own; its thread is never used for anything else.
	runtime.LockOSThread()
	machine, err := vnetns.New()
	if err != nil {
		t.Skipf("network namespaces are not available: %v", err)
	}
	defer machine.Close()
	if err := NewHostBridge("pn0", netip.MustParsePrefix("10.89.0.1/24"), netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	// Translating addresses between the two subnets would stand in the way of tunnels.
	if err := removeTable("", nodeTable); err != nil {
		t.Fatal(err)
	}
	h, err := handle("")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := ensureBridge(h, "pn1", 1500, []netip.Prefix{netip.MustParsePrefix("10.90.0.1/24")}); err != nil {
		t.Fatal(err)
	}
	type testNode struct{ name, bridge, addr, gateway, pods string }
	tests := []testNode{
		{"a", "pn0", "10.89.0.2/24", "10.89.0.1", "10.244.1.0/24"},
		{"b", "pn0", "10.89.0.3/24", "10.89.0.1", "10.244.2.0/24"},
		{"c", "pn1", "10.90.0.2/24", "10.90.0.1", "10.244.3.0/24"},
	}
	var nodes []*corev1.Node
	for _, tt := range tests {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Spec: corev1.NodeSpec{PodCIDRs: []string{tt.pods}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{
				Type: corev1.NodeInternalIP, Address: netip.MustParsePrefix(tt.addr).Addr().String()}}},
		})
	}
	networks := map[string]*Network{}
	for _, tt := range tests {
		ns := fmt.Sprintf("proa-test-%d-%s", os.Getpid(), tt.name)
		t.Cleanup(func() {
			if err := DeleteNamespace(ns); err != nil {
				t.Error(err)
			}
		})
		for range 2 { // the second time changes nothing
			if _, err := NewNamespace(ns, tt.bridge, netip.MustParsePrefix(tt.addr), netip.MustParseAddr(tt.gateway)); err != nil {
				t.Fatal(err)
			}
		}
		cable, err := h.LinkByName(vethName(ns))
		if err != nil {
			t.Fatal(err)
		}
		if port, err := h.LinkGetProtinfo(cable); err != nil || !port.Hairpin {
			t.Errorf("node %s cannot reach itself through the machine: %+v, %v", tt.name, port, err)
		}
		n, err := New(Config{
			NodeName: tt.name, NodeIP: netip.MustParsePrefix(tt.addr).Addr(), NetNS: NamespacePath(ns),
			ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
			ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
			ConfDir:      t.TempDir(), DataDir: t.TempDir(), PluginDirs: plugins(t, "bridge", "host-local"),
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		networks[tt.name] = n
		for range 2 {
			if err := n.apply(nodes); err != nil {
				t.Fatalf("node %s: %v", tt.name, err)
			}
		}
	}
	// The gateway address of a node stands for a pod; a listener there sees who asks.
	for _, to := range tests {
		pod := netip.MustParsePrefix(to.pods).Addr().Next().String()
		l, err := netns.Listen(t.Context(), networks[to.name].config.NetNS, "tcp", net.JoinHostPort(pod, "8080"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go answer(l, "")
		for _, from := range tests {
			source := netip.MustParsePrefix(from.pods).Addr().Next().String()
			if got := dial(networks[from.name].config.NetNS, source, pod); got != source {
				t.Errorf("pod of %s to pod of %s: the other end sees %q, want %q", from.name, to.name, got, source)
			}
		}
	}
	// A pod that leaves the cluster has the node's address.
	l, err := net.Listen("tcp", "10.89.0.1:8081")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := make(chan string, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			seen <- host
			conn.Close()
		}
	}()
	netns.Do(networks["a"].config.NetNS, func() error {
		d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.244.1.1")}}
		conn, err := d.Dial("tcp", "10.89.0.1:8081")
		if err != nil {
			t.Errorf("leave the cluster: %v", err)
			seen <- ""
			return nil
		}
		return conn.Close()
	})
	if got := <-seen; got != "10.89.0.2" {
		t.Errorf("outside sees %q, want the node's address 10.89.0.2", got)
	}

	// Without the others their routes go; without the node everything goes.
	a := networks["a"]
	if err := a.apply(nodes[:1]); err != nil {
		t.Fatal(err)
	}
	if got := routeCount(t, a); got != 1 {
		t.Errorf("%d routes are left without peers, want that to the Services", got)
	}
	for range 2 {
		if err := a.Cleanup(); err != nil {
			t.Errorf("clean up: %v", err)
		}
	}
	if got := routeCount(t, a); got != 0 {
		t.Errorf("%d routes are left after clean-up", got)
	}
	inside, err := handle(a.config.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	links, err := inside.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if name := link.Attrs().Name; name == "proa0" || name == tunnelName {
			t.Errorf("interface %s is left after clean-up", name)
		}
	}
	for range 2 {
		if err := DeleteHostBridge("pn0"); err != nil {
			t.Error(err)
		}
	}
}

// machine is a namespace of its own from here on, a node at 192.0.2.2 with a bridge at 10.89.0.1, and has a node at 10.89.0.2
// whose namespace's path is returned.
func machine(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	runtime.LockOSThread() // and never unlocked
	own, err := vnetns.New()
	if err != nil {
		t.Skipf("network namespaces are not available: %v", err)
	}
	t.Cleanup(func() { own.Close() })
	h, err := handle("")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err == nil {
		err = h.LinkSetUp(lo)
	}
	if err == nil {
		err = h.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("192.0.2.2/32"))})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := NewHostBridge("pn0", netip.MustParsePrefix("10.89.0.1/24"), netip.MustParseAddr("192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("proa-test-%d", os.Getpid())
	t.Cleanup(func() {
		if err := DeleteNamespace(name); err != nil {
			t.Error(err)
		}
	})
	path, err := NewNamespace(name, "pn0", netip.MustParsePrefix("10.89.0.2/24"), netip.MustParseAddr("10.89.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// answer says the same to everybody, or without a text the address they come from.
func answer(l net.Listener, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if text == "" {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			fmt.Fprint(conn, host)
		}
		fmt.Fprint(conn, text)
		conn.Close()
	}
}

// A node asks the machine for something that the machine leads back to the same node: the packet turns on the bridge, even
// where the kernel translates addresses while it bridges.
func TestTurn(t *testing.T) {
	path := machine(t)
	l, err := netns.Listen(t.Context(), path, "tcp", "10.89.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l, "turned")
	// As the proxy of the machine does for a node port: new destination, own source.
	own, node := netip.MustParseAddr("10.89.0.1"), netip.MustParseAddr("10.89.0.2")
	err = withTable("", "turn", func(conn *nftables.Conn, table *nftables.Table) {
		conn.AddTable(table)
		chain := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority, address netip.Addr, rest ...expr.Any) {
			c := conn.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
			rule := guarded(address, compare(netip.PrefixFrom(address, 32), true, expr.CmpOpEq))
			conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: append(rule, rest...)})
		}
		chain("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, own,
			&expr.Immediate{Register: 1, Data: node.AsSlice()},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1})
		chain("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, node, &expr.Masq{})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bridged := range []string{"1", "0"} {
		if err := netns.Sysctl("", "net/bridge/bridge-nf-call-iptables", bridged); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if got := dial(path, "10.89.0.2", "10.89.0.1"); got != "turned" {
			t.Errorf("with bridged packets shown to the filter = %s the node gets %q", bridged, got)
		}
	}
}

// Nodes see each other by their addresses, and so do pods, as a Service that keeps the source promises.
func TestSource(t *testing.T) {
	node := machine(t)
	h, err := handle("")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := ensureBridge(h, defaultBridge, 1500, []netip.Prefix{netip.MustParsePrefix("10.244.0.1/24")}); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("proa-test-%d-pod", os.Getpid())
	t.Cleanup(func() {
		if err := DeleteNamespace(name); err != nil {
			t.Error(err)
		}
	})
	pod, err := NewNamespace(name, defaultBridge, netip.MustParsePrefix("10.244.0.5/24"), netip.MustParseAddr("10.244.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := netns.Listen(t.Context(), pod, "tcp", "10.244.0.5:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l, "")
	there, err := netns.Listen(t.Context(), node, "tcp", "10.89.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	go answer(there, "")
	if got := dial("", "", "10.89.0.2"); got != "192.0.2.2" {
		t.Errorf("the node sees the machine as %q, want the address of the machine's node", got)
	}
	if got := dial(node, "10.89.0.2", "10.244.0.5"); got != "10.89.0.2" {
		t.Errorf("the pod sees %q, want the node's address", got)
	}
}

// Packets from loopback may leave by the pod network, while nobody there reaches what listens on loopback.
func TestLoopback(t *testing.T) {
	path := machine(t)
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go answer(l, "loopback")
	if got := dial("", "127.0.0.1", "127.0.0.1"); got != "loopback" {
		t.Errorf("the machine itself gets %q from its loopback", got)
	}
	// The neighbour has no loopback of its own and sends what is for 127.0.0.1 to the machine.
	inside, err := handle(path)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	own, err := inside.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	loopback, err := netlink.ParseAddr("127.0.0.1/8")
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.AddrDel(own, loopback); err != nil {
		t.Fatal(err)
	}
	if err := routeLoopback(path, namespaceLink); err != nil {
		t.Fatal(err)
	}
	cable, err := inside.LinkByName(namespaceLink)
	if err != nil {
		t.Fatal(err)
	}
	via := &netlink.Route{LinkIndex: cable.Attrs().Index, Gw: net.IPv4(10, 89, 0, 1), Dst: ipNet(netip.MustParsePrefix("127.0.0.0/8"))}
	if err := inside.RouteReplace(via); err != nil {
		t.Fatal(err)
	}
	if got := dial(path, "10.89.0.2", "127.0.0.1"); got == "loopback" {
		t.Error("a neighbour reaches what listens on the machine's loopback")
	}
	if err := removeTable("", nodeTable); err != nil {
		t.Fatal(err)
	}
	if got := dial(path, "10.89.0.2", "127.0.0.1"); got != "loopback" {
		t.Errorf("the test does not reach the machine's loopback even without the rules: %q", got)
	}
}

func routeCount(t *testing.T, n *Network) int {
	t.Helper()
	h, err := handle(n.config.NetNS)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var list []netlink.Route
	if list, err = ownRoutes(h); err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// dial returns what answers, or the error. The kernel may take a second until new ports of bridges forward.
func dial(ns, source, host string) string {
	var conn net.Conn
	err := netns.Do(ns, func() (err error) {
		d := net.Dialer{Timeout: 3 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		conn, err = d.Dial("tcp", net.JoinHostPort(host, "8080"))
		return err
	})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 64)
	n, _ := conn.Read(buf)
	return string(buf[:n])
}
