package clientfake

import (
	"context"
	"slices"

	"proa/client"
)

// subscription holds the events that a handler has not yet been told; it is guarded by the client's mu.
type subscription struct {
	scopes  []client.Scope
	pending []client.Event
	wake    chan struct{}
}

// Subscribe implements client.Interface. No events are merged.
func (c *Client) Subscribe(ctx context.Context, handle func(client.Event), scopes ...client.Scope) error {
	s := &subscription{scopes: scopes, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	for _, scope := range scopes {
		for _, obj := range c.selected(scope) {
			s.pending = append(s.pending, client.Event{Resource: scope.Resource, New: obj})
		}
	}
	s.pending = append(s.pending, client.Event{})
	c.subs[s] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.subs, s)
	}()
	for ctx.Err() == nil {
		c.mu.Lock()
		events := slices.Clone(s.pending)
		s.pending = s.pending[:0]
		c.mu.Unlock()
		for _, e := range events {
			handle(e)
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		}
	}
	return ctx.Err()
}

// notice queues what a change means to the scopes of s.
func (s *subscription) notice(e client.Event) {
	for _, scope := range s.scopes {
		if scope.Resource != e.Resource {
			continue
		}
		seen := client.Event{Resource: e.Resource}
		if e.Old != nil && selects(scope, e.Old) {
			seen.Old = e.Old
		}
		if e.New != nil && selects(scope, e.New) {
			seen.New = e.New
		}
		if seen.Old == nil && seen.New == nil {
			continue
		}
		s.pending = append(s.pending, seen)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
