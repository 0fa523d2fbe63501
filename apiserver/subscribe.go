package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"proa/api"
	"proa/client"
	"proa/store"
)

// Subscribe tells of a scope's objects and their changes.
func (l *local) Subscribe(ctx context.Context, handle func(client.Event), scopes ...client.Scope) error {
	d := l.s.dispatch
	sub := &subscription{wake: make(chan struct{}, 1), pending: map[string]*change{}}
	for _, scope := range scopes {
		v := l.s.servedFor(scope.Resource)
		sub.scopes = append(sub.scopes, subscope{v, v.scope(scope.Namespace), scopeSelector(v, scope)})
	}
	if err := d.add(sub); err != nil {
		return err
	}
	defer d.remove(sub)
	// Only the revision is kept: a snapshot held for as long as the subscription would keep all that is replaced meanwhile.
	snap := l.s.store.Snapshot()
	since := snap.Revision()
	for _, scope := range sub.scopes {
		for v := range snap.Range(scope.prefix, "") {
			if obj := v.Value.(*object).Object; scope.sel.matches(obj) {
				if ctx.Err() != nil {
					return nil
				}
				handle(client.Event{Resource: scope.v.Resource, New: obj})
			}
		}
	}
	handle(client.Event{})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sub.wake:
		}
		changes, err := sub.take()
		for _, c := range changes {
			if ctx.Err() != nil {
				return nil
			}
			if c.last.Revision <= since {
				continue
			}
			sub.tell(c, handle)
		}
		if err != nil {
			return err
		}
	}
}

type subscope struct {
	v      *served
	prefix string
	sel    *selector
}

// subscription is a mailbox: changes wait there, merged by key, until its goroutine takes them.
type subscription struct {
	scopes []subscope
	wake   chan struct{}

	mu      sync.Mutex
	order   []*change
	pending map[string]*change
	err     error
}

// change is what has happened to a key since the last look.
type change struct {
	first, last *store.Version
}

func (s *subscription) push(v *store.Version) {
	s.mu.Lock()
	// A deletion is told before what comes after it under the same name.
	if c := s.pending[v.Key]; c != nil && c.last.Value != nil {
		c.last = v
	} else {
		c := &change{v, v}
		s.pending[v.Key] = c
		s.order = append(s.order, c)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) take() ([]*change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.order
	s.order = nil
	clear(s.pending)
	return out, s.err
}

// tell turns a change into an event of each scope that sees it.
func (s *subscription) tell(c *change, handle func(client.Event)) {
	for _, scope := range s.scopes {
		if !strings.HasPrefix(c.last.Key, scope.prefix) {
			continue
		}
		e := client.Event{Resource: scope.v.Resource}
		if p := c.first.Prev; p != nil && p.Value != nil {
			if obj := p.Value.(*object).Object; scope.sel.matches(obj) {
				e.Old = obj
			}
		}
		if c.last.Value != nil {
			if obj := c.last.Value.(*object).Object; scope.sel.matches(obj) {
				e.New = obj
			}
		}
		if e.Old != nil || e.New != nil {
			handle(e)
		}
	}
}

// dispatcher follows the feed once for all subscriptions of the process. Those that want the objects of one value of a
// field (the pods of a node, the object of a name) are found by that value, so that an event costs what those who see it cost,
// not what all subscribers cost.
type dispatcher struct {
	store *store.Store
	log   *slog.Logger

	mu      sync.Mutex
	started bool
	closed  error
	stop    context.CancelFunc
	done    chan struct{}
	kinds   map[string]*audience
}

// audience are the subscriptions to a kind.
type audience struct {
	all     map[*subscription]int
	byValue map[fieldIndex]map[*subscription]int
	// fields counts the subscriptions by each field.
	fields map[string]int
}

type fieldIndex struct{ field, value string }

func newDispatcher(s *store.Store, log *slog.Logger) *dispatcher {
	return &dispatcher{store: s, log: log, kinds: map[string]*audience{}, done: make(chan struct{})}
}

// index says by which value a scope can be found.
func (s subscope) index() (fieldIndex, bool) {
	for _, name := range []string{"spec.nodeName", "metadata.name"} {
		if value, ok := s.sel.exact(name); ok {
			return fieldIndex{name, value}, true
		}
	}
	return fieldIndex{}, false
}

func (d *dispatcher) add(s *subscription) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		return d.closed
	}
	if !d.started {
		cursor, err := d.store.Follow(d.store.Revision())
		if err != nil {
			return err
		}
		var ctx context.Context
		ctx, d.stop = context.WithCancel(context.Background())
		d.started = true
		go d.run(ctx, cursor)
	}
	for _, scope := range s.scopes {
		a := d.kinds[scope.v.prefix]
		if a == nil {
			a = &audience{map[*subscription]int{}, map[fieldIndex]map[*subscription]int{}, map[string]int{}}
			d.kinds[scope.v.prefix] = a
		}
		if x, ok := scope.index(); ok {
			if a.byValue[x] == nil {
				a.byValue[x] = map[*subscription]int{}
			}
			a.byValue[x][s]++
			a.fields[x.field]++
		} else {
			a.all[s]++
		}
	}
	return nil
}

func (d *dispatcher) remove(s *subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, scope := range s.scopes {
		a := d.kinds[scope.v.prefix]
		if x, ok := scope.index(); ok {
			if a.byValue[x][s]--; a.byValue[x][s] == 0 {
				delete(a.byValue[x], s)
			}
			if len(a.byValue[x]) == 0 {
				delete(a.byValue, x)
			}
			if a.fields[x.field]--; a.fields[x.field] == 0 {
				delete(a.fields, x.field)
			}
		} else if a.all[s]--; a.all[s] == 0 {
			delete(a.all, s)
		}
	}
}

func (d *dispatcher) run(ctx context.Context, cursor *store.Cursor) {
	defer close(d.done)
	for {
		versions, err := cursor.Next(ctx)
		d.mu.Lock()
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
				d.log.Error("subscriptions ended", "err", err)
			}
			d.end(err)
			d.mu.Unlock()
			return
		}
		for _, v := range versions {
			if a := d.kinds[kindOf(v.Key)]; a != nil {
				a.deliver(v)
			}
		}
		d.mu.Unlock()
	}
}

// end tells all subscriptions that there will be nothing more. The lock is held.
func (d *dispatcher) end(err error) {
	d.closed = err
	for _, a := range d.kinds {
		groups := []map[*subscription]int{a.all}
		for _, g := range a.byValue {
			groups = append(groups, g)
		}
		for _, g := range groups {
			for s := range g {
				s.mu.Lock()
				s.err = err
				s.mu.Unlock()
				select {
				case s.wake <- struct{}{}:
				default:
				}
			}
		}
	}
}

func (a *audience) deliver(v *store.Version) {
	for s := range a.all {
		s.push(v)
	}
	if len(a.fields) == 0 {
		return
	}
	var old, obj api.Object
	var resource *api.Resource
	if v.Prev != nil && v.Prev.Value != nil {
		o := v.Prev.Value.(*object)
		old, resource = o.Object, o.served.Resource
	}
	if v.Value != nil {
		o := v.Value.(*object)
		obj, resource = o.Object, o.served.Resource
	}
	if resource == nil {
		return
	}
	for name := range a.fields {
		var before string
		if old != nil {
			before = fieldValue(resource, old, name)
			for s := range a.byValue[fieldIndex{name, before}] {
				if a.all[s] == 0 {
					s.push(v)
				}
			}
		}
		if obj != nil {
			if after := fieldValue(resource, obj, name); old == nil || after != before {
				for s := range a.byValue[fieldIndex{name, after}] {
					if a.all[s] == 0 {
						s.push(v)
					}
				}
			}
		}
	}
}

func (d *dispatcher) close() {
	d.mu.Lock()
	started := d.started
	if started {
		d.stop()
	} else if d.closed == nil {
		d.closed = store.ErrClosed
	}
	d.mu.Unlock()
	if started {
		<-d.done
	}
}
