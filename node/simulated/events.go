package simulated

import (
	"context"

	"proa/node/runtime"
)

// subscriber is one call of Events. Its queue is guarded by the runtime's mutex.
type subscriber struct {
	queue []runtime.Event
	wake  chan struct{} // holds a token while the queue may have something
}

// Events implements runtime.Runtime. It returns when ctx has ended.
func (r *Runtime) Events(ctx context.Context, handle func(runtime.Event)) error {
	s := &subscriber{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.subscribers[s] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, s)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
		r.mu.Lock()
		queue := s.queue
		s.queue = nil
		r.mu.Unlock()
		for _, event := range queue {
			handle(event)
		}
	}
}

func (r *Runtime) publishLocked(event runtime.Event) {
	for s := range r.subscribers {
		// The receiver looks up the state, so an event that waits already stands for this one too.
		if n := len(s.queue); n > 0 && s.queue[n-1] == event {
			continue
		}
		s.queue = append(s.queue, event)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
