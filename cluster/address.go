package cluster

import (
	"net"
	"net/netip"
	"strings"
)

// defaultAddress is the address this machine would use to reach the world, or loopback. No packet is sent: connecting a
// UDP socket only consults the routing table.
func defaultAddress() netip.Addr {
	if conn, err := net.Dial("udp4", "203.0.113.1:9"); err == nil {
		defer conn.Close()
		if a, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
			return a.Addr()
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
				return p.Addr()
			}
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// nodeName turns a host name into a valid node name.
func nodeName(host string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(host))
	if name = strings.Trim(name, "-."); name == "" {
		return "node"
	}
	return name
}
