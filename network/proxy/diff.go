package proxy

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// owner has a unit of the table: a Service, or a pod with host ports.
type owner struct {
	pod bool
	types.NamespacedName
}

func (o owner) compare(other owner) int {
	return cmp.Or(cmp.Compare(btoi(o.pod), btoi(other.pod)), cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name))
}

// state is what the table holds: the units that were applied and who has each place.
type state struct {
	units   map[owner]*unit
	owners  map[place]owner
	waiting map[place]map[owner]bool
}

func newState() *state {
	return &state{
		units:   map[owner]*unit{},
		owners:  map[place]owner{},
		waiting: map[place]map[owner]bool{},
	}
}

// change collects the steps that lead from the state to new units.
type change struct {
	ops      []Op
	elements map[Set]*[2][]Element // deleted, added
	// freed are the owners that may now have a place they wanted.
	freed map[owner]bool
}

func newChange() *change {
	return &change{elements: map[Set]*[2][]Element{}, freed: map[owner]bool{}}
}

func (c *change) element(s Set, add int, e Element) {
	if c.elements[s] == nil {
		c.elements[s] = &[2][]Element{}
	}
	c.elements[s][add] = append(c.elements[s][add], e)
}

// replace adds to c what turns an owner's present unit into next, or takes it away if that is nil. The cost depends on
// this unit alone.
func (s *state) replace(c *change, o owner, next *unit) {
	old := s.units[o]
	if old == nil {
		old = &unit{}
	}
	if next == nil {
		next = &unit{}
		delete(s.units, o)
	} else {
		s.units[o] = next
	}
	s.claim(o, old, next, c)

	for _, key := range sorted(next.sets) {
		if _, ok := old.sets[key]; !ok {
			c.ops = append(c.ops, Op{Action: AddSet, Set: next.sets[key]})
		}
	}
	for _, key := range sorted(next.chains) {
		chain := next.chains[key]
		before, ok := old.chains[key]
		if ok && chain.same(before) {
			continue
		}
		if ok {
			c.ops = append(c.ops, Op{Action: FlushChain, Chain: key})
		} else {
			c.ops = append(c.ops, Op{Action: AddChain, Chain: key})
		}
		for _, r := range chain.Rules {
			c.ops = append(c.ops, Op{Action: AddRule, Chain: key, Rule: r})
		}
	}
	for _, key := range sorted(old.chains) {
		if _, ok := next.chains[key]; !ok {
			c.ops = append(c.ops, Op{Action: FlushChain, Chain: key}, Op{Action: DeleteChain, Chain: key})
		}
	}
	for _, key := range sorted(old.sets) {
		if _, ok := next.sets[key]; !ok {
			c.ops = append(c.ops, Op{Action: DeleteSet, Set: old.sets[key]})
		}
	}
}

// claim moves the elements. A place belongs to the first owner that wants it; the next one gets it when it is freed.
func (s *state) claim(o owner, old, next *unit, c *change) {
	for p, v := range old.elements {
		if waiting := s.waiting[p]; waiting[o] {
			delete(waiting, o)
			if len(waiting) == 0 {
				delete(s.waiting, p)
			}
			delete(old.elements, p)
			continue
		}
		if now, ok := next.elements[p]; ok && now == v {
			continue
		}
		c.element(p.set, 0, Element{p.key, v})
		if _, ok := next.elements[p]; !ok {
			delete(s.owners, p)
			for other := range s.waiting[p] {
				c.freed[other] = true
			}
		}
	}
	for p, v := range next.elements {
		if now, ok := s.owners[p]; ok && now != o {
			if s.waiting[p] == nil {
				s.waiting[p] = map[owner]bool{}
			}
			s.waiting[p][o] = true
			continue
		}
		s.owners[p] = o
		if before, ok := old.elements[p]; !ok || before != v {
			c.element(p.set, 1, Element{p.key, v})
		}
	}
}

// transaction orders the steps so that everything exists while it is referred to.
func (c *change) transaction() Transaction {
	ops := c.ops
	sets := slices.SortedFunc(maps.Keys(c.elements), func(a, b Set) int { return cmp.Compare(a.Name, b.Name) })
	for _, set := range sets {
		for i, action := range []Action{DeleteElements, AddElements} {
			list := c.elements[set][i]
			if len(list) == 0 {
				continue
			}
			slices.SortFunc(list, func(a, b Element) int { return a.Key.compare(b.Key) })
			ops = append(ops, Op{Action: action, Set: set, Elements: list})
		}
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(phase(a.Action), phase(b.Action)) })
	return Transaction{Ops: ops}
}

// phase groups actions: a chain's flush stays before its rules.
func phase(a Action) int {
	switch a {
	case FlushChain, AddRule:
		return int(FlushChain)
	}
	return int(a)
}

// reset is the transaction that makes the table anew with all units of the state.
func (s *state) reset() Transaction {
	sets, chains := base()
	t := Transaction{Reset: true}
	c := newChange()
	for _, set := range sets {
		t.Ops = append(t.Ops, Op{Action: AddSet, Set: set})
	}
	for _, chain := range chains {
		t.Ops = append(t.Ops, Op{Action: AddChain, Chain: chain.Name, Hook: chain.Hook})
	}
	for _, chain := range chains {
		for _, r := range chain.Rules {
			t.Ops = append(t.Ops, Op{Action: AddRule, Chain: chain.Name, Rule: r})
		}
	}
	units := s.units
	*s = *newState()
	for _, o := range slices.SortedFunc(maps.Keys(units), owner.compare) {
		s.replace(c, o, units[o])
	}
	t.Ops = append(t.Ops, c.transaction().Ops...)
	return t
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
