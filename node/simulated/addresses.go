package simulated

import "net/netip"

// pool hands out the addresses of a range in turn, so that an address just given back is the last to be used again.
type pool struct {
	prefix netip.Prefix
	next   netip.Addr
	used   map[netip.Addr]struct{}
}

func newPool(prefix netip.Prefix) pool {
	p := pool{prefix: prefix.Masked(), used: map[netip.Addr]struct{}{}}
	p.next = p.first()
	return p
}

// first leaves out the network's own address and the gateway's.
func (p *pool) first() netip.Addr { return p.prefix.Addr().Next().Next() }

// take returns a free address, or none when all are used.
func (p *pool) take() (netip.Addr, bool) {
	for addr, wrapped := p.next, false; ; addr = addr.Next() {
		// The last address of an IPv4 range is its broadcast address.
		if !p.prefix.Contains(addr) || (addr.Is4() && !p.prefix.Contains(addr.Next())) {
			if wrapped {
				return netip.Addr{}, false
			}
			addr, wrapped = p.prefix.Addr().Next(), true // the loop's step makes it the first
			continue
		}
		if _, taken := p.used[addr]; !taken {
			p.used[addr] = struct{}{}
			p.next = addr.Next()
			return addr, true
		}
	}
}

func (p *pool) give(addr netip.Addr) { delete(p.used, addr) }
