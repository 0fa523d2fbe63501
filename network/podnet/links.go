package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// routeProtocol marks the routes that are ours, among those of the kernel, the administrator and routing daemons.
const routeProtocol = 98

// The tunnel between nodes of different subnets.
const (
	tunnelName     = "proa-vxlan"
	tunnelID       = 9810
	tunnelPort     = 4789
	tunnelOverhead = 50 // outer Ethernet, IPv4, UDP and VXLAN headers
)

// handle opens netlink in the namespace at a path.
func handle(path string) (*netlink.Handle, error) {
	if path == "" {
		return netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", path, err)
	}
	return h, nil
}

// links makes the bridge, the tunnel if a peer needs it, and the routes. It returns the MTU of the pods' interfaces.
func (n *Network) links(own []netip.Prefix, peers []peer) (int, error) {
	h, err := handle(n.config.NetNS)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	uplink, subnets, err := addresses(h, n.config.NodeIP)
	if err != nil {
		return 0, err
	}
	mtu := n.config.MTU
	if mtu == 0 {
		mtu = uplink.MTU
	}
	bridge, err := ensureBridge(h, n.config.Bridge, mtu, gateways(own))
	if err != nil {
		return 0, err
	}
	wanted := n.serviceRoutes(bridge)
	var remote []peer
	for _, p := range peers {
		gateway, ok := n.nextHop(h, p.addr, subnets)
		if !ok {
			remote = append(remote, p)
			continue
		}
		for _, pods := range p.pods {
			if pods.Addr().Is4() == gateway.Is4() {
				wanted = append(wanted, netlink.Route{Dst: ipNet(pods), Gw: gateway.AsSlice()})
			}
		}
	}
	if len(remote) > 0 {
		routes, err := n.tunnel(h, own, remote, mtu)
		if err != nil {
			return 0, err
		}
		wanted = append(wanted, routes...)
	}
	return mtu, reconcileRoutes(h, wanted)
}

// addresses returns the interface with an address and the networks that are directly connected.
func addresses(h *netlink.Handle, ip netip.Addr) (uplink *netlink.LinkAttrs, subnets []netip.Prefix, err error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := h.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, nil, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			addr, ok := netip.AddrFromSlice(a.IP)
			if !ok {
				continue
			}
			bits, _ := a.Mask.Size()
			addr = addr.Unmap()
			if addr == ip {
				uplink = l.Attrs()
			}
			if !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && bits < addr.BitLen() {
				subnets = append(subnets, netip.PrefixFrom(addr, bits).Masked())
			}
		}
	}
	if uplink == nil {
		return nil, nil, fmt.Errorf("no interface has the node's address %v", ip)
	}
	return uplink, subnets, nil
}

func gateways(own []netip.Prefix) []netip.Prefix {
	out := make([]netip.Prefix, len(own))
	for i, p := range own {
		out[i] = netip.PrefixFrom(p.Addr().Next(), p.Bits())
	}
	return out
}

// ensureBridge makes a bridge that has the addresses and is up.
func ensureBridge(h *netlink.Handle, name string, mtu int, addrs []netip.Prefix) (netlink.Link, error) {
	err := h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make bridge %s: %w", name, err)
	}
	link, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find bridge %s: %w", name, err)
	}
	present, err := h.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", name, err)
	}
	for _, a := range present {
		addr, _ := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		// An address of a range that the node no longer has would let the runtime's plugin refuse the bridge.
		if addr = addr.Unmap(); !addr.IsLinkLocalUnicast() && !slices.Contains(addrs, netip.PrefixFrom(addr, bits)) {
			if err := h.AddrDel(link, &a); err != nil {
				return nil, fmt.Errorf("remove address %v of %s: %w", addr, name, err)
			}
		}
	}
	for _, p := range addrs {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD // nobody else can be on the bridge with this address
		}
		if err := h.AddrReplace(link, address); err != nil {
			return nil, fmt.Errorf("give %v to %s: %w", p, name, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("start bridge %s: %w", name, err)
	}
	return link, nil
}

// serviceRoutes let the node's own processes reach Services even without a default route: the kernel looks for a route
// before the proxy's rules see the packet.
func (n *Network) serviceRoutes(bridge netlink.Link) []netlink.Route {
	var out []netlink.Route
	for _, p := range n.config.ServiceCIDRs {
		if p.Addr().Is4() == n.config.NodeIP.Is4() {
			out = append(out, netlink.Route{
				Dst: ipNet(p), LinkIndex: bridge.Attrs().Index, Src: n.config.NodeIP.AsSlice(), Scope: netlink.SCOPE_LINK,
			})
		}
	}
	return out
}

// nextHop is how a node is reached without a tunnel, if it can be.
func (n *Network) nextHop(h *netlink.Handle, addr netip.Addr, subnets []netip.Prefix) (netip.Addr, bool) {
	for _, s := range subnets {
		if s.Contains(addr) {
			return addr, true
		}
	}
	if addr != n.config.Host {
		return netip.Addr{}, false
	}
	routes, err := h.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}, false
	}
	gateway, ok := netip.AddrFromSlice(routes[0].Gw)
	return gateway.Unmap(), ok
}

// tunnel makes the VXLAN interface with an entry for every peer and returns the routes through it. The hardware address
// of a node's end follows from its address, so that nodes need not tell each other.
func (n *Network) tunnel(h *netlink.Handle, own []netip.Prefix, peers []peer, mtu int) ([]netlink.Route, error) {
	link := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: tunnelName, MTU: mtu - tunnelOverhead, HardwareAddr: hardwareAddr(n.config.NodeIP)},
		VxlanId:   tunnelID, Port: tunnelPort, SrcAddr: n.config.NodeIP.AsSlice(),
	}
	if err := h.LinkAdd(link); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", tunnelName, err)
	}
	device, err := h.LinkByName(tunnelName)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", tunnelName, err)
	}
	for _, p := range own {
		// The network's own address is free: host-local starts with the gateway.
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Addr().BitLen(), p.Addr().BitLen())}}
		if err := h.AddrReplace(device, a); err != nil {
			return nil, fmt.Errorf("give %v to %s: %w", p.Addr(), tunnelName, err)
		}
	}
	if err := h.LinkSetUp(device); err != nil {
		return nil, fmt.Errorf("start %s: %w", tunnelName, err)
	}
	var routes []netlink.Route
	index := device.Attrs().Index
	for _, p := range peers {
		mac := hardwareAddr(p.addr)
		err := h.NeighSet(&netlink.Neigh{
			LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT,
			IP: p.addr.AsSlice(), HardwareAddr: mac,
		})
		if err != nil {
			return nil, fmt.Errorf("add node %s to %s: %w", p.name, tunnelName, err)
		}
		for _, pods := range p.pods {
			err := h.NeighSet(&netlink.Neigh{
				LinkIndex: index, State: netlink.NUD_PERMANENT, IP: pods.Addr().AsSlice(), HardwareAddr: mac,
			})
			if err != nil {
				return nil, fmt.Errorf("add node %s to %s: %w", p.name, tunnelName, err)
			}
			routes = append(routes, netlink.Route{
				Dst: ipNet(pods), Gw: pods.Addr().AsSlice(), LinkIndex: index, Flags: int(netlink.FLAG_ONLINK),
			})
		}
	}
	return routes, nil
}

// hardwareAddr is a locally administered address that is unique as long as the node's address is.
func hardwareAddr(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return append(net.HardwareAddr{0x0e, 0x70}, b[len(b)-4:]...)
}

// reconcileRoutes makes the wanted routes and removes ours that are not wanted.
func reconcileRoutes(h *netlink.Handle, wanted []netlink.Route) error {
	keep := map[string]bool{}
	for _, r := range wanted {
		r.Protocol = routeProtocol
		if err := h.RouteReplace(&r); err != nil {
			return fmt.Errorf("route to %v: %w", r.Dst, err)
		}
		keep[r.Dst.String()] = true
	}
	present, err := ownRoutes(h)
	if err != nil {
		return err
	}
	for _, r := range present {
		if r.Dst != nil && !keep[r.Dst.String()] {
			if err := h.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("remove route to %v: %w", r.Dst, err)
			}
		}
	}
	return nil
}

func ownRoutes(h *netlink.Handle) ([]netlink.Route, error) {
	list, err := h.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// removeLinks takes bridge, tunnel and routes away. A namespace that is gone took them along.
func (n *Network) removeLinks() error {
	h, err := handle(n.config.NetNS)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return errors.Join(reconcileRoutes(h, nil), removeLink(h, n.config.Bridge), removeLink(h, tunnelName))
}

func removeLink(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil
	}
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}
