package proxy

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Statement is a part of a rule: as text, which also is its identity, and as expressions of the kernel's machine.
type Statement struct {
	text  string
	exprs []expr.Any
	// choices, if any, become an anonymous map from 0, 1, ... that the last expression looks up.
	choices []Verdict
}

// Registers: r1 to r4 hold 16 bytes each; a concatenated key lies in consecutive 4-byte slots, of which slot0 is the
// first of r1.
const (
	r1    = unix.NFT_REG_1
	r2    = unix.NFT_REG_2
	slot0 = unix.NFT_REG32_00
)

// family is what differs between IPv4 and IPv6.
type family struct {
	name, suffix       string
	nfproto            byte
	size               uint32
	saddr, daddr       uint32 // offsets in the header
	services, affinity SetType
	addresses          SetType
}

var (
	ipv4 = &family{
		name: "ip", suffix: "4", nfproto: unix.NFPROTO_IPV4, size: 4, saddr: 12, daddr: 16,
		services: ServiceMap4, affinity: AffinitySet4, addresses: AddrSet4,
	}
	ipv6 = &family{
		name: "ip6", suffix: "6", nfproto: unix.NFPROTO_IPV6, size: 16, saddr: 8, daddr: 24,
		services: ServiceMap6, affinity: AffinitySet6, addresses: AddrSet6,
	}
)

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// unspecified stands for all addresses.
func (f *family) unspecified() netip.Addr {
	if f == ipv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func (f *family) load(reg, offset uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size}
}

// only makes sure that the packet is of the family before its header is looked at.
func (f *family) only() Statement {
	name := map[string]string{"ip": "ipv4", "ip6": "ipv6"}[f.name]
	return Statement{text: "meta nfproto " + name, exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: r1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: r1, Data: []byte{f.nfproto}},
	}}
}

// serviceMap looks up address, protocol and port of the destination.
func (f *family) serviceMap(name string) Statement {
	proto := uint32(slot0) + f.size/4
	return Statement{text: fmt.Sprintf("%s daddr . meta l4proto . th dport vmap @%s", f.name, name), exprs: []expr.Any{
		f.load(r1, f.daddr),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: proto},
		dport(proto + 1),
		&expr.Lookup{SourceRegister: r1, DestRegister: 0, IsDestRegSet: true, SetName: name},
	}}
}

func portMap(name string) Statement {
	return Statement{text: "meta l4proto . th dport vmap @" + name, exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: slot0},
		dport(slot0 + 1),
		&expr.Lookup{SourceRegister: r1, DestRegister: 0, IsDestRegSet: true, SetName: name},
	}}
}

func dport(reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

// inSet matches packets whose source ("saddr") or destination ("daddr") is in a set.
func (f *family) inSet(field, name string) Statement {
	return Statement{text: fmt.Sprintf("%s %s @%s", f.name, field, name), exprs: []expr.Any{
		f.load(r1, f.offset(field)), &expr.Lookup{SourceRegister: r1, SetName: name},
	}}
}

func (f *family) offset(field string) uint32 {
	if field == "saddr" {
		return f.saddr
	}
	return f.daddr
}

// remember adds the source to an affinity set, or gives it a new lease of life there.
func (f *family) remember(name string) Statement {
	return Statement{text: fmt.Sprintf("update @%s { %s saddr }", name, f.name), exprs: []expr.Any{
		f.load(r1, f.saddr), &expr.Dynset{SrcRegKey: r1, SetName: name, Operation: unix.NFT_DYNSET_OP_UPDATE},
	}}
}

// inside matches packets whose field is in a prefix, outside those where it is not.
func inside(field string, p netip.Prefix) Statement  { return compare(field, p, expr.CmpOpEq, " ") }
func outside(field string, p netip.Prefix) Statement { return compare(field, p, expr.CmpOpNeq, " != ") }

func compare(field string, p netip.Prefix, op expr.CmpOp, sign string) Statement {
	f, text := familyOf(p.Addr()), p.String()
	exprs := []expr.Any{f.load(r1, f.offset(field))}
	if p.IsSingleIP() {
		text = p.Addr().String()
	} else {
		mask := make([]byte, f.size)
		for i := range p.Bits() {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		exprs = append(exprs, &expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: f.size, Mask: mask, Xor: make([]byte, f.size)})
	}
	exprs = append(exprs, &expr.Cmp{Op: op, Register: r1, Data: p.Masked().Addr().AsSlice()})
	return Statement{text: f.name + " " + field + sign + text, exprs: exprs}
}

func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func isProtocol(p Protocol) Statement {
	return Statement{text: "meta l4proto " + p.String(), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: r1, Data: []byte{byte(p)}},
	}}
}

func toPort(port uint16) Statement {
	return Statement{text: fmt.Sprintf("th dport %d", port), exprs: []expr.Any{
		dport(r1), &expr.Cmp{Op: expr.CmpOpEq, Register: r1, Data: binaryutil.BigEndian.PutUint16(port)},
	}}
}

// local matches packets from ("saddr") or to ("daddr") an address of this node.
func local(field string) Statement {
	return Statement{text: "fib " + field + " type local", exprs: []expr.Any{
		&expr.Fib{Register: r1, ResultADDRTYPE: true, FlagSADDR: field == "saddr", FlagDADDR: field == "daddr"},
		&expr.Cmp{Op: expr.CmpOpEq, Register: r1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}}
}

// newConnection matches the first packet of a connection.
func newConnection() Statement {
	return Statement{text: "ct state new", exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: r1},
		&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r1, Data: make([]byte, 4)},
	}}
}

// mark notes that the packet's source is to be replaced when it leaves.
func mark() Statement {
	return Statement{text: fmt.Sprintf("meta mark set meta mark or %#x", masqueradeMark), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: r1},
		&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^uint32(masqueradeMark)), Xor: binaryutil.NativeEndian.PutUint32(masqueradeMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: r1},
	}}
}

func unmarked() Statement {
	return Statement{text: fmt.Sprintf("meta mark and %#x == 0", masqueradeMark), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: r1},
		&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(masqueradeMark), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: r1, Data: make([]byte, 4)},
	}}
}

// unmark clears the mark, so that a packet that is wrapped in another one is not changed twice.
func unmark() Statement {
	return Statement{text: fmt.Sprintf("meta mark set meta mark and not %#x", masqueradeMark), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: r1},
		&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(^uint32(masqueradeMark)), Xor: make([]byte, 4)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: r1},
	}}
}

func masquerade() Statement {
	return Statement{text: "masquerade fully-random", exprs: []expr.Any{&expr.Masq{FullyRandom: true}}}
}

// reset refuses a TCP connection.
func reset() Statement {
	return Statement{text: "reject with tcp reset", exprs: []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}}
}

func reject() Statement {
	return Statement{text: "reject", exprs: []expr.Any{
		&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH},
	}}
}

// dnat sends the packet to an endpoint.
func dnat(to netip.AddrPort) Statement {
	f := familyOf(to.Addr())
	return Statement{text: fmt.Sprintf("dnat %s to %s", f.name, to), exprs: []expr.Any{
		&expr.Immediate{Register: r1, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: r2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nfproto), RegAddrMin: r1, RegProtoMin: r2, Specified: true},
	}}
}

// choose picks one of the verdicts at random.
func choose(verdicts []Verdict) Statement {
	texts := make([]string, len(verdicts))
	for i, v := range verdicts {
		texts[i] = fmt.Sprintf("%d : %s", i, v)
	}
	return Statement{
		text: fmt.Sprintf("numgen random mod %d vmap { %s }", len(verdicts), strings.Join(texts, ", ")),
		exprs: []expr.Any{&expr.Numgen{
			Register: r1, Modulus: uint32(len(verdicts)), Type: unix.NFT_NG_RANDOM,
		}},
		choices: verdicts,
	}
}

func (v Verdict) statement() Statement {
	return Statement{text: v.String(), exprs: []expr.Any{v.expr()}}
}

func (v Verdict) expr() *expr.Verdict {
	switch v.Kind {
	case "goto":
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: v.Chain}
	case "jump":
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: v.Chain}
	case "drop":
		return &expr.Verdict{Kind: expr.VerdictDrop}
	case "accept":
		return &expr.Verdict{Kind: expr.VerdictAccept}
	}
	return &expr.Verdict{Kind: expr.VerdictReturn}
}
