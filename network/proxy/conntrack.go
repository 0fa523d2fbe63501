package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// flow is an address and port whose datagrams the kernel may keep sending to an endpoint that is gone: without a
// connection there is no end that would make it choose again.
type flow struct {
	at    netip.AddrPort // an unspecified address means any of the node's
	proto Protocol
	to    map[netip.AddrPort]bool
}

func (p *servicePort) flows() []flow {
	if p.proto == TCP {
		return nil
	}
	to := map[netip.AddrPort]bool{}
	for _, e := range p.cluster {
		to[e] = true
	}
	for _, e := range p.local {
		to[e] = true
	}
	var out []flow
	for _, a := range append([]netip.Addr{p.clusterIP}, p.external...) {
		out = append(out, flow{netip.AddrPortFrom(a, uint16(p.port.Port)), p.proto, to})
	}
	if p.port.NodePort != 0 {
		out = append(out, flow{netip.AddrPortFrom(p.family.unspecified(), uint16(p.port.NodePort)), p.proto, to})
	}
	return out
}

// stale are the flows of next that may exist in the kernel with an endpoint that they should not have.
func stale(old, next *unit) []flow {
	if old == nil {
		// Clients may have sent before anything answered there.
		return slices.DeleteFunc(slices.Clone(next.flows), func(f flow) bool { return len(f.to) == 0 })
	}
	type id struct {
		at    netip.AddrPort
		proto Protocol
	}
	now := map[id]flow{}
	if next != nil {
		for _, f := range next.flows {
			now[id{f.at, f.proto}] = f
		}
	}
	var out []flow
	for _, f := range old.flows {
		current := now[id{f.at, f.proto}]
		gone := len(f.to) == 0 && len(current.to) > 0 // its packets were refused or sent to nowhere
		for e := range f.to {
			gone = gone || !current.to[e]
		}
		if gone {
			out = append(out, flow{f.at, f.proto, current.to})
		}
	}
	return out
}

// conntrack deletes the entries of stale flows.
type conntrack struct{ namespace string }

func (c conntrack) clean(flows []flow) error {
	if len(flows) == 0 {
		return nil
	}
	ns := netns.None()
	if c.namespace != "" {
		f, err := os.Open(c.namespace)
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer f.Close()
		ns = netns.NsHandle(f.Fd())
	}
	var handle *netlink.Handle
	var err error
	if ns.IsOpen() {
		handle, err = netlink.NewHandleAt(ns)
	} else {
		handle, err = netlink.NewHandle()
	}
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	filter := staleFilter{}
	var own []netip.Addr
	for _, f := range flows {
		addrs := []netip.Addr{f.at.Addr()}
		if f.at.Addr().IsUnspecified() {
			if own == nil {
				if own, err = ownAddresses(handle); err != nil {
					return err
				}
			}
			addrs = own
		}
		for _, a := range addrs {
			filter[target{netip.AddrPortFrom(a, f.at.Port()), f.proto}] = f.to
		}
	}
	_, err4 := handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V4, filter)
	_, err6 := handle.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.FAMILY_V6, filter)
	return errors.Join(err4, err6)
}

// ownAddresses are those of the node.
func ownAddresses(h *netlink.Handle) ([]netip.Addr, error) {
	list, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}

type target struct {
	at    netip.AddrPort
	proto Protocol
}

// staleFilter matches entries whose answers come from somewhere else than an endpoint.
type staleFilter map[target]map[netip.AddrPort]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	to, ok := s[target{addrPort(f.Forward.DstIP, f.Forward.DstPort), Protocol(f.Forward.Protocol)}]
	return ok && !to[addrPort(f.Reverse.SrcIP, f.Reverse.SrcPort)]
}

func addrPort(ip net.IP, port uint16) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a.Unmap(), port)
}
