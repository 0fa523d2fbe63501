package proxy

import (
	"errors"
	"fmt"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Netlink applies transactions to an inet table of its own in the kernel. It leaves all other tables alone.
type Netlink struct {
	table     *nftables.Table
	namespace string
}

// NewNetlink returns the rules of the network namespace at a path, or of this process's when that is empty.
func NewNetlink(table, namespace string) *Netlink {
	return &Netlink{table: &nftables.Table{Name: table, Family: nftables.TableFamilyINet}, namespace: namespace}
}

// socketBuffer has to hold a whole transaction, and the kernel's answers to its parts.
const socketBuffer = 256 << 20

// chunk is how many elements go into one message; a list of elements may take 64 KiB.
const chunk = 256

func (n *Netlink) do(f func(*nftables.Conn) error) error {
	options := []nftables.ConnOption{nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(socketBuffer), c.SetReadBuffer(socketBuffer))
	})}
	if n.namespace != "" {
		namespace, err := os.Open(n.namespace)
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		defer namespace.Close()
		options = append(options, nftables.WithNetNSFd(int(namespace.Fd())))
	}
	conn, err := nftables.New(options...)
	if err != nil {
		return err
	}
	return f(conn)
}

// Apply makes the transaction true in one step of the kernel.
func (n *Netlink) Apply(t Transaction) error {
	return n.do(func(conn *nftables.Conn) error {
		conn.AddTable(n.table)
		if t.Reset {
			// Adding first makes deleting succeed whether or not the table exists.
			conn.DelTable(n.table)
			conn.AddTable(n.table)
		}
		b := batch{Conn: conn, table: n.table}
		for _, op := range t.Ops {
			if err := b.add(op); err != nil {
				return fmt.Errorf("%s: %w", op, err)
			}
		}
		if err := conn.Flush(); err != nil {
			return fmt.Errorf("change table %s: %w", n.table.Name, err)
		}
		return nil
	})
}

// Remove deletes the table.
func (n *Netlink) Remove() error {
	return n.do(func(conn *nftables.Conn) error {
		conn.AddTable(n.table)
		conn.DelTable(n.table)
		if err := conn.Flush(); err != nil {
			return fmt.Errorf("delete table %s: %w", n.table.Name, err)
		}
		return nil
	})
}

type batch struct {
	*nftables.Conn
	table  *nftables.Table
	lastID uint32
}

// id numbers the sets of one batch. The library would number them with a variable that all connections share unguarded.
func (b *batch) id() uint32 {
	b.lastID++
	return b.lastID
}

func (b *batch) add(op Op) error {
	chain := &nftables.Chain{Table: b.table, Name: op.Chain}
	switch op.Action {
	case AddSet:
		return b.AddSet(b.set(op.Set), nil)
	case AddChain:
		if op.Hook != nil {
			hooks := map[string]*nftables.ChainHook{
				"prerouting": nftables.ChainHookPrerouting, "input": nftables.ChainHookInput, "forward": nftables.ChainHookForward,
				"output": nftables.ChainHookOutput, "postrouting": nftables.ChainHookPostrouting,
			}
			chain.Type, chain.Hooknum = nftables.ChainType(op.Hook.Type), hooks[op.Hook.Hook]
			chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(op.Hook.Priority))
		}
		b.AddChain(chain)
	case FlushChain:
		b.FlushChain(chain)
	case DeleteChain:
		b.DelChain(chain)
	case AddRule:
		return b.rule(chain, op.Rule)
	case DeleteSet:
		b.DelSet(b.set(op.Set))
	case AddElements:
		return b.elements(b.set(op.Set), op.Elements, b.SetAddElements)
	case DeleteElements:
		return b.elements(b.set(op.Set), op.Elements, b.SetDeleteElements)
	}
	return nil
}

func (b *batch) set(s Set) *nftables.Set {
	out := &nftables.Set{Table: b.table, ID: b.id(), Name: s.Name, DataType: nftables.TypeVerdict, IsMap: true, Concatenation: true}
	address := nftables.TypeIPAddr
	switch s.Type {
	case ServiceMap6, AddrSet6, AffinitySet6:
		address = nftables.TypeIP6Addr
	}
	switch s.Type {
	case ServiceMap4, ServiceMap6:
		out.KeyType = nftables.MustConcatSetType(address, nftables.TypeInetProto, nftables.TypeInetService)
	case PortMap:
		out.KeyType = nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	default:
		out.KeyType, out.IsMap, out.Concatenation, out.DataType = address, false, false, nftables.SetDatatype{}
		out.KeyByteOrder = binaryutil.BigEndian
		if s.Type == AffinitySet4 || s.Type == AffinitySet6 {
			out.Dynamic, out.HasTimeout, out.Timeout, out.Size = true, true, s.Timeout, 65535
		}
	}
	return out
}

func (b *batch) elements(set *nftables.Set, elements []Element, apply func(*nftables.Set, []nftables.SetElement) error) error {
	for len(elements) > 0 {
		n := min(len(elements), chunk)
		list := make([]nftables.SetElement, n)
		for i, e := range elements[:n] {
			list[i].Key = e.Key.bytes()
			if set.IsMap {
				list[i].VerdictData = e.Verdict.expr()
			}
		}
		if err := apply(set, list); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}

// bytes of a key: every part fills a multiple of four bytes.
func (k Key) bytes() []byte {
	var out []byte
	if k.Addr.IsValid() {
		out = append(out, k.Addr.AsSlice()...)
	}
	if k.Port != 0 {
		out = append(out, byte(k.Proto), 0, 0, 0, byte(k.Port>>8), byte(k.Port), 0, 0)
	}
	return out
}

func (b *batch) rule(chain *nftables.Chain, r Rule) error {
	var exprs []expr.Any
	for _, s := range r {
		exprs = append(exprs, s.exprs...)
		if len(s.choices) == 0 {
			continue
		}
		set := &nftables.Set{
			Table: b.table, ID: b.id(), Name: "__map%d", Anonymous: true, Constant: true, IsMap: true,
			KeyType: nftables.TypeInteger, DataType: nftables.TypeVerdict,
		}
		if err := b.AddSet(set, nil); err != nil {
			return err
		}
		list := make([]nftables.SetElement, len(s.choices))
		for i, v := range s.choices {
			list[i] = nftables.SetElement{Key: binaryutil.NativeEndian.PutUint32(uint32(i)), VerdictData: v.expr()}
		}
		// The library adds elements to an anonymous set only as one message; within the batch its number finds it as well.
		numbered := *set
		numbered.Anonymous = false
		for len(list) > 0 {
			n := min(len(list), chunk)
			if err := b.SetAddElements(&numbered, list[:n]); err != nil {
				return err
			}
			list = list[n:]
		}
		exprs = append(exprs, &expr.Lookup{SourceRegister: r1, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetID: set.ID, SetName: set.Name})
	}
	b.AddRule(&nftables.Rule{Table: b.table, Chain: chain, Exprs: exprs})
	return nil
}
