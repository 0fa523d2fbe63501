package proxy

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Rules is where transactions go: the kernel, or a record of them in a test. Apply makes all of a transaction true at once or
// nothing of it.
type Rules interface {
	Apply(Transaction) error
	// Remove takes everything away.
	Remove() error
}

// Transaction is a list of changes. Reset starts from an empty table.
type Transaction struct {
	Reset bool
	Ops   []Op
}

// String is the transaction in the language of nft, one change a line.
func (t Transaction) String() string {
	var b strings.Builder
	if t.Reset {
		b.WriteString("reset table\n")
	}
	for _, op := range t.Ops {
		b.WriteString(op.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// Action is what an Op does.
type Action uint8

// The actions, in the order of a transaction: what is referred to exists first and goes last.
const (
	AddSet Action = iota
	AddChain
	FlushChain
	AddRule
	DeleteElements
	AddElements
	DeleteChain
	DeleteSet
)

// Op is one change.
type Op struct {
	Action   Action
	Chain    string // of AddChain, FlushChain, AddRule and DeleteChain
	Hook     *Hook  // of AddChain, for chains that the kernel calls
	Rule     Rule   // of AddRule
	Set      Set    // of AddSet, AddElements, DeleteElements and DeleteSet
	Elements []Element
}

// String is the change in the language of nft.
func (o Op) String() string {
	switch o.Action {
	case AddSet:
		return "add " + o.Set.String()
	case AddChain:
		if o.Hook != nil {
			return fmt.Sprintf("add chain %s { %s }", o.Chain, o.Hook)
		}
		return "add chain " + o.Chain
	case FlushChain:
		return "flush chain " + o.Chain
	case AddRule:
		return "add rule " + o.Chain + " " + o.Rule.String()
	case DeleteChain:
		return "delete chain " + o.Chain
	case DeleteSet:
		return "delete set " + o.Set.Name
	}
	verb := "add"
	if o.Action == DeleteElements {
		verb = "delete"
	}
	texts := make([]string, len(o.Elements))
	for i, e := range o.Elements {
		texts[i] = e.String()
	}
	return fmt.Sprintf("%s element %s { %s }", verb, o.Set.Name, strings.Join(texts, ", "))
}

// Hook says where the kernel calls a chain.
type Hook struct {
	Type, Hook string
	Priority   int
}

func (h *Hook) String() string {
	return fmt.Sprintf("type %s hook %s priority %d ;", h.Type, h.Hook, h.Priority)
}

// SetType is what the elements of a set are.
type SetType uint8

// The types of sets that the proxy uses.
const (
	ServiceMap4  SetType = iota // ipv4_addr . inet_proto . inet_service : verdict
	ServiceMap6                 // ipv6_addr . inet_proto . inet_service : verdict
	PortMap                     // inet_proto . inet_service : verdict
	AddrSet4                    // ipv4_addr
	AddrSet6                    // ipv6_addr
	AffinitySet4                // ipv4_addr, added by packets, with a timeout
	AffinitySet6                // ipv6_addr, added by packets, with a timeout
)

// Set is a named set or verdict map.
type Set struct {
	Name    string
	Type    SetType
	Timeout time.Duration
}

func (s Set) String() string {
	switch s.Type {
	case ServiceMap4:
		return "map " + s.Name + " { type ipv4_addr . inet_proto . inet_service : verdict ; }"
	case ServiceMap6:
		return "map " + s.Name + " { type ipv6_addr . inet_proto . inet_service : verdict ; }"
	case PortMap:
		return "map " + s.Name + " { type inet_proto . inet_service : verdict ; }"
	case AddrSet4:
		return "set " + s.Name + " { type ipv4_addr ; }"
	case AddrSet6:
		return "set " + s.Name + " { type ipv6_addr ; }"
	case AffinitySet4:
		return fmt.Sprintf("set %s { type ipv4_addr ; flags dynamic,timeout ; timeout %ds ; }", s.Name, int(s.Timeout.Seconds()))
	default:
		return fmt.Sprintf("set %s { type ipv6_addr ; flags dynamic,timeout ; timeout %ds ; }", s.Name, int(s.Timeout.Seconds()))
	}
}

// Key of an element. The address is absent in port maps, the rest in address sets.
type Key struct {
	Addr  netip.Addr
	Proto Protocol
	Port  uint16
}

func (k Key) String() string {
	var parts []string
	if k.Addr.IsValid() {
		parts = append(parts, k.Addr.String())
	}
	if k.Port != 0 {
		parts = append(parts, k.Proto.String(), fmt.Sprint(k.Port))
	}
	return strings.Join(parts, " . ")
}

func (k Key) compare(o Key) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Proto, o.Proto), cmp.Compare(k.Port, o.Port))
}

// Element of a set, with a verdict in maps.
type Element struct {
	Key
	Verdict Verdict
}

func (e Element) String() string {
	if e.Verdict == (Verdict{}) {
		return e.Key.String()
	}
	return e.Key.String() + " : " + e.Verdict.String()
}

// Verdict on a packet: "goto" or "jump" with a chain, "drop", "accept" or "return".
type Verdict struct{ Kind, Chain string }

func (v Verdict) String() string { return strings.TrimSpace(v.Kind + " " + v.Chain) }

func goTo(chain string) Verdict { return Verdict{"goto", chain} }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprint(uint8(p))
}

// Rule is a list of statements.
type Rule []Statement

func (r Rule) String() string {
	texts := make([]string, len(r))
	for i, s := range r {
		texts[i] = s.text
	}
	return strings.Join(texts, " ")
}

// Chain is a list of rules.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Rule
}

// same reports whether two chains hold the same rules; the text of a statement says all about it.
func (c Chain) same(o Chain) bool {
	if len(c.Rules) != len(o.Rules) {
		return false
	}
	for i := range c.Rules {
		if len(c.Rules[i]) != len(o.Rules[i]) {
			return false
		}
		for j := range c.Rules[i] {
			if c.Rules[i][j].text != o.Rules[i][j].text {
				return false
			}
		}
	}
	return true
}
