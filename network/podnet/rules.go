package podnet

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"proa/internal/netns"
)

// Our nftables tables: one in each node, one on the machine for the nodes in namespaces.
const (
	podTable  = "proa-pods"
	nodeTable = "proa-nodes"
)

// rules gives packets of this node's pods that leave the cluster the node's address. Where the kernel does not show bridged packets to the
// filter, answers between pods of one bridge would miss the proxy's translation back; those connections go
// through the node's address as well.
func (n *Network) rules(own []netip.Prefix, bridged bool) error {
	var rules [][]expr.Any
	for _, p := range own {
		rule := guarded(p.Addr(), compare(p, false, expr.CmpOpEq))
		for _, c := range n.config.ClusterCIDRs {
			if c.Addr().Is4() == p.Addr().Is4() {
				rule = append(rule, compare(c, true, expr.CmpOpNeq)...)
			}
		}
		rule = append(rule, leavesBy(n.config.Bridge, expr.CmpOpNeq)...)
		rules = append(rules, append(rule, &expr.Masq{FullyRandom: true}))
		if bridged {
			continue
		}
		rule = guarded(p.Addr(), compare(p, false, expr.CmpOpEq))
		rule = append(rule, compare(p, true, expr.CmpOpEq)...)
		rules = append(rules, append(rule,
			&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(ctStatusDNAT), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Masq{},
		))
	}
	return writeTable(n.config.NetNS, podTable, rules)
}

// ctStatusDNAT is the bit of a connection whose destination was translated.
const ctStatusDNAT = 1 << 5

// guarded puts the check of the family before expressions that read its header.
func guarded(a netip.Addr, exprs []expr.Any) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if a.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
	}, exprs...)
}

// compare matches the source or destination with a prefix.
func compare(p netip.Prefix, destination bool, op expr.CmpOp) []expr.Any {
	size, offset := uint32(4), uint32(12)
	if p.Addr().Is6() {
		size, offset = 16, 8
	}
	if destination {
		offset += size
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()},
	}
}

func leavesBy(name string, op expr.CmpOp) []expr.Any { return device(expr.MetaKeyOIFNAME, name, op) }

// device matches the interface of a packet.
func device(key expr.MetaKey, name string, op expr.CmpOp) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: data}}
}

// loopbackOnly drops packets that come from elsewhere with an address of loopback. It looks at them before addresses
// are translated back: answers to what loopback asked are not among them.
func loopbackOnly() [][]expr.Any {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	var rules [][]expr.Any
	for _, destination := range []bool{false, true} {
		rule := guarded(loopback.Addr(), compare(loopback, destination, expr.CmpOpEq))
		rule = append(rule, device(expr.MetaKeyIIFNAME, "lo", expr.CmpOpNeq)...)
		rules = append(rules, append(rule, &expr.Verdict{Kind: expr.VerdictDrop}))
	}
	return rules
}

// routeLoopback lets packets from loopback leave by a device and their answers come in by it. The rules of loopbackOnly have to
// be there before.
func routeLoopback(namespace, device string) error {
	return netns.Sysctl(namespace, "net/ipv4/conf/"+device+"/route_localnet", "1")
}

// writeTable replaces a table with the rules for leaving packets and those of loopbackOnly, in one step.
func writeTable(namespace, name string, rules [][]expr.Any) error {
	return withTable(namespace, name, func(conn *nftables.Conn, table *nftables.Table) {
		conn.AddTable(table)
		chain := conn.AddChain(&nftables.Chain{
			Table: table, Name: "postrouting", Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
		}
		chain = conn.AddChain(&nftables.Chain{
			Table: table, Name: "prerouting", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		})
		for _, r := range loopbackOnly() {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r})
		}
	})
}

// removeTable deletes a table, whether it exists or not.
func removeTable(namespace, name string) error {
	err := withTable(namespace, name, func(*nftables.Conn, *nftables.Table) {})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the namespace is gone, and the table with it
	}
	return err
}

func withTable(namespace, name string, f func(*nftables.Conn, *nftables.Table)) error {
	var options []nftables.ConnOption
	if namespace != "" {
		ns, err := os.Open(namespace)
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer ns.Close()
		options = append(options, nftables.WithNetNSFd(int(ns.Fd())))
	}
	conn, err := nftables.New(options...)
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
	conn.AddTable(table)
	conn.DelTable(table)
	f(conn, table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("change table %s: %w", name, err)
	}
	return nil
}
