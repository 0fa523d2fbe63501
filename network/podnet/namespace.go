package podnet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"proa/internal/netns"
)

// namespaceDir is where named network namespaces are, also for the command ip netns.
const namespaceDir = "/run/netns"

// namespaceLink is the interface of a node in such a namespace.
const namespaceLink = "eth0"

// NamespacePath is the path of a namespace that NewNamespace makes.
func NamespacePath(name string) string { return filepath.Join(namespaceDir, name) }

// NewHostBridge makes the bridge of this machine that connects nodes in namespaces with each other and, through its own address,
// with everything else. The machine speaks to them with the address of its own node, if that is usable. Nothing changes if the
// bridge is there already.
func NewHostBridge(bridge string, address netip.Prefix, node netip.Addr) error {
	h, err := handle("")
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := ensureBridge(h, bridge, 1500, []netip.Prefix{address})
	if err != nil {
		return err
	}
	if node.Is4() && !node.IsLoopback() {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(address.Masked()), Src: node.AsSlice(), Scope: netlink.SCOPE_LINK}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("route to the nodes of this machine: %w", err)
		}
	}
	if err := netns.Sysctl("", "net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	// What leaves the machine gets its address; what stays on the bridge or goes to pods of the machine keeps its own.
	rule := guarded(address.Addr(), compare(address, false, expr.CmpOpEq))
	for _, own := range []string{bridge, defaultBridge} {
		rule = append(rule, leavesBy(own, expr.CmpOpNeq)...)
	}
	if err := writeTable("", nodeTable, [][]expr.Any{append(rule, &expr.Masq{})}); err != nil {
		return err
	}
	return routeLoopback("", bridge)
}

// DeleteHostBridge takes away what NewHostBridge made.
func DeleteHostBridge(bridge string) error {
	h, err := handle("")
	if err != nil {
		return err
	}
	defer h.Close()
	return errors.Join(removeLink(h, bridge), removeTable("", nodeTable))
}

// NewNamespace makes a network namespace for a node, with an interface eth0 that has the address, is connected to the
// bridge and has a default route through the gateway. One that exists already is completed. It returns the namespace's path.
func NewNamespace(name, bridge string, address netip.Prefix, gateway netip.Addr) (string, error) {
	path := NamespacePath(name)
	if err := makeNamespace(name); err != nil {
		return "", err
	}
	host, err := handle("")
	if err != nil {
		return "", err
	}
	defer host.Close()
	inside, err := handle(path)
	if err != nil {
		return "", err
	}
	defer inside.Close()
	if err := connect(host, inside, path, vethName(name), bridge); err != nil {
		return "", fmt.Errorf("connect namespace %s: %w", name, err)
	}
	if err := hairpin(host, vethName(name)); err != nil {
		return "", fmt.Errorf("connect namespace %s: %w", name, err)
	}
	if err := setUp(inside, address, gateway); err != nil {
		return "", fmt.Errorf("set up namespace %s: %w", name, err)
	}
	return path, nil
}

// DeleteNamespace removes a namespace that NewNamespace made, with its interfaces. Processes in it keep it alive but cut
// off.
func DeleteNamespace(name string) error {
	h, err := handle("")
	if err != nil {
		return err
	}
	defer h.Close()
	path := NamespacePath(name)
	err = removeLink(h, vethName(name))
	if e := unix.Unmount(path, unix.MNT_DETACH); e != nil && !errors.Is(e, unix.ENOENT) && !errors.Is(e, unix.EINVAL) {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", path, e))
	}
	if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if left, e := os.ReadDir(namespaceDir); e == nil && len(left) == 0 {
		_ = unix.Unmount(namespaceDir, 0) // the last one takes the shared mount with it, unless somebody is in it
	}
	return err
}

// makeNamespace makes the named namespace unless it exists.
func makeNamespace(name string) error {
	if ns, err := vnetns.GetFromPath(NamespacePath(name)); err == nil {
		defer ns.Close()
		var stat unix.Statfs_t
		if unix.Fstatfs(int(ns), &stat) == nil && stat.Type == unix.NSFS_MAGIC {
			return nil
		}
		// A file without a namespace is left from before the machine restarted.
		if err := os.Remove(NamespacePath(name)); err != nil {
			return err
		}
	}
	if err := shareNamespaces(); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the new namespace and ends
		ns, err := vnetns.NewNamed(name)
		if err == nil {
			err = ns.Close()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("make network namespace %s: %w", name, err)
	}
	return nil
}

// shareNamespaces makes the folder of namespaces a shared mount, as the command ip netns does before its first one: made
// later, that mount would hide the namespaces that are there.
func shareNamespaces() error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", namespaceDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := share()
	if errors.Is(err, unix.EINVAL) { // not a mount yet
		if err := unix.Mount(namespaceDir, namespaceDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", namespaceDir, err)
		}
		err = share()
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", namespaceDir, err)
	}
	return nil
}

// vethName is the name of the machine's end of a node's cable; names of interfaces are short.
func vethName(name string) string {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return fmt.Sprintf("proa%08x", sum.Sum32())
}

func connect(host, inside *netlink.Handle, path, veth, bridge string) error {
	if _, err := inside.LinkByName(namespaceLink); err == nil {
		return nil
	}
	master, err := host.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	if err := removeLink(host, veth); err != nil {
		return err
	}
	ns, err := vnetns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	cable := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: veth, MasterIndex: master.Attrs().Index, MTU: master.Attrs().MTU},
		PeerName:  namespaceLink, PeerNamespace: netlink.NsFd(ns),
	}
	if err := host.LinkAdd(cable); err != nil {
		return fmt.Errorf("make interface %s: %w", veth, err)
	}
	link, err := host.LinkByName(veth)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", veth, err)
	}
	return host.LinkSetUp(link)
}

// hairpin lets the bridge send a packet back to the node it came from. Where the kernel shows bridged packets to the packet
// filter, it does so with those that a node sends to a node port of the machine and whose endpoint is on that node again.
func hairpin(host *netlink.Handle, veth string) error {
	link, err := host.LinkByName(veth)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", veth, err)
	}
	if err := host.LinkSetHairpin(link, true); err != nil {
		return fmt.Errorf("let packets turn at interface %s: %w", veth, err)
	}
	return nil
}

// setUp starts the namespace's interfaces and gives eth0 its address and the default route.
func setUp(inside *netlink.Handle, address netip.Prefix, gateway netip.Addr) error {
	for _, name := range []string{"lo", namespaceLink} {
		link, err := inside.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find interface %s: %w", name, err)
		}
		if err := inside.LinkSetUp(link); err != nil {
			return fmt.Errorf("start interface %s: %w", name, err)
		}
		if name == "lo" {
			continue
		}
		ip := &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen())}
		if err := inside.AddrReplace(link, &netlink.Addr{IPNet: ip}); err != nil {
			return fmt.Errorf("give %v to %s: %w", address, name, err)
		}
		if !gateway.IsValid() {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}
		if err := inside.RouteReplace(route); err != nil {
			return fmt.Errorf("default route through %v: %w", gateway, err)
		}
	}
	return nil
}
