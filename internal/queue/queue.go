// Package queue is the one work queue of proa's control loops: keys are handled one at a time per key, by a fixed number of
// workers, again after failures with exponential back-off and jitter, and later when asked for. It never polls.
package queue

import (
	"container/heap"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Back-off after failures: the first retry comes after BaseDelay, each later one after twice as long, up to MaxDelay.
const (
	BaseDelay = 5 * time.Millisecond
	MaxDelay  = 1000 * time.Second
)

// Handle does one step for a key. A positive delay asks to be called again after it; an error asks for a retry with
// back-off.
type Handle[K comparable] func(ctx context.Context, key K) (time.Duration, error)

// Queue of keys. Use New. Add and AddAfter may be called at any time from any goroutine.
type Queue[K comparable] struct {
	mu       sync.Mutex
	wake     chan struct{} // closed and replaced when something becomes ready
	ready    []K
	state    map[K]state // queued and running keys
	failures map[K]int
	later    laterHeap[K]
	due      map[K]*entry[K]
	timer    *time.Timer
	closed   bool
}

type state uint8

const (
	queued  state = 1 << iota // in ready
	running                   // a worker has it
	again                     // added while running
)

type entry[K comparable] struct {
	key   K
	at    time.Time
	index int
}

// New returns an empty queue.
func New[K comparable]() *Queue[K] {
	return &Queue[K]{
		wake:     make(chan struct{}),
		state:    map[K]state{},
		failures: map[K]int{},
		due:      map[K]*entry[K]{},
	}
}

// Add asks for key to be handled soon. Adding a waiting key again changes nothing; adding a running key has it handled
// once more afterwards.
func (q *Queue[K]) Add(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

func (q *Queue[K]) add(key K) {
	switch s := q.state[key]; {
	case s&queued != 0:
	case s&running != 0:
		q.state[key] = s | again
	default:
		q.state[key] = queued
		q.ready = append(q.ready, key)
		q.signal()
	}
}

// AddAfter asks for key to be handled once d has passed. Of several such wishes for a key the earliest counts.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d <= 0 {
		q.add(key)
		return
	}
	q.addAfter(key, d)
}

func (q *Queue[K]) addAfter(key K, d time.Duration) {
	if q.closed {
		return
	}
	at := time.Now().Add(d)
	if e := q.due[key]; e != nil {
		if e.at.Before(at) {
			return
		}
		e.at = at
		heap.Fix(&q.later, e.index)
	} else {
		e = &entry[K]{key: key, at: at}
		q.due[key] = e
		heap.Push(&q.later, e)
	}
	q.schedule()
}

// Len is the number of keys that wait to be handled now.
func (q *Queue[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.ready)
}

// Run handles keys with the given number of workers until ctx ends, then waits for the workers. It is called once.
func (q *Queue[K]) Run(ctx context.Context, log *slog.Logger, workers int, handle Handle[K]) {
	work := func() {
		for {
			key, ok := q.next(ctx)
			if !ok {
				return
			}
			after, err := handle(ctx, key)
			if err != nil && ctx.Err() == nil {
				log.Debug("retry", "key", key, "err", err)
			}
			q.done(key, after, err)
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work() // the caller's goroutine is a worker too
	wg.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
}

func (q *Queue[K]) next(ctx context.Context) (K, bool) {
	for {
		q.mu.Lock()
		if len(q.ready) > 0 && ctx.Err() == nil {
			key := q.ready[0]
			q.ready = q.ready[1:]
			q.state[key] = running
			q.mu.Unlock()
			return key, true
		}
		wake := q.wake
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			var zero K
			return zero, false
		case <-wake:
		}
	}
}

func (q *Queue[K]) done(key K, after time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state[key]
	delete(q.state, key)
	if s&again != 0 {
		q.add(key)
	}
	if err != nil {
		n := q.failures[key]
		q.failures[key] = n + 1
		d := MaxDelay
		if n < 18 {
			d = min(BaseDelay<<n, MaxDelay)
		}
		q.addAfter(key, d+rand.N(d/10+1))
		return
	}
	delete(q.failures, key)
	if after > 0 {
		q.addAfter(key, after)
	}
}

// signal wakes the workers that wait. The caller holds mu.
func (q *Queue[K]) signal() {
	close(q.wake)
	q.wake = make(chan struct{})
}

// schedule arms the timer for the earliest delayed key. The caller holds mu.
func (q *Queue[K]) schedule() {
	if len(q.later) == 0 {
		return
	}
	d := time.Until(q.later[0].at)
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.release)
	} else {
		q.timer.Reset(d)
	}
}

func (q *Queue[K]) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	now := time.Now()
	for len(q.later) > 0 && !q.later[0].at.After(now) {
		e := heap.Pop(&q.later).(*entry[K])
		delete(q.due, e.key)
		q.add(e.key)
	}
	q.schedule()
}

type laterHeap[K comparable] []*entry[K]

func (h laterHeap[K]) Len() int           { return len(h) }
func (h laterHeap[K]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h laterHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *laterHeap[K]) Push(x any) {
	e := x.(*entry[K])
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *laterHeap[K]) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
