package scheduler

import (
	"container/heap"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Back-off of pods that could not be placed, and how long one waits for a helpful event before it is tried anyway.
const (
	initialBackoff   = time.Second
	maxBackoff       = 10 * time.Second
	maxUnschedulable = 5 * time.Minute
)

type place uint8

const (
	inFlight place = iota
	active
	backoff
	waiting // unschedulable until an event helps
	gated
)

// entry is a pending pod.
type entry struct {
	info     *podInfo
	place    place
	added    time.Time
	attempts int
	// failedAt is when the last attempt ended; due when the entry leaves backoff or waiting by itself.
	failedAt, due time.Time
	// rejectedBy are the plugins that stood in the way of the last attempt; empty: any event helps.
	rejectedBy sets.Set[string]
	// changed says that the pod was updated while it was being decided.
	changed bool
	index   int
}

func (e *entry) backoffEnd() time.Time {
	if e.attempts == 0 {
		return e.failedAt
	}
	d := maxBackoff
	if e.attempts < 5 {
		d = min(initialBackoff<<(e.attempts-1), maxBackoff)
	}
	return e.failedAt.Add(d)
}

// queue holds the pending pods: active ones by priority and age, the others until they are due or an event helps. The
// Scheduler's mutex guards it.
type queue struct {
	entries map[types.UID]*entry
	active  entryHeap
	later   entryHeap // backoff and waiting
	now     func() time.Time
}

func newQueue(now func() time.Time) *queue {
	return &queue{
		entries: map[types.UID]*entry{},
		now:     now,
		active: entryHeap{less: func(a, b *entry) bool {
			if pa, pb := a.info.priority(), b.info.priority(); pa != pb {
				return pa > pb
			}
			return a.added.Before(b.added)
		}},
		later: entryHeap{less: func(a, b *entry) bool { return a.due.Before(b.due) }},
	}
}

// add takes a new pod, gated or ready.
func (q *queue) add(p *podInfo, isGated bool) *entry {
	e := &entry{info: p, added: q.now(), place: inFlight}
	q.entries[p.pod.UID] = e
	if isGated {
		e.place = gated
	} else {
		q.move(e, active)
	}
	return e
}

// remove forgets a pod.
func (q *queue) remove(uid types.UID) {
	if e := q.entries[uid]; e != nil {
		q.take(e)
		delete(q.entries, uid)
	}
}

// pop returns the next pod to place, or nil.
func (q *queue) pop() *entry {
	q.release()
	if q.active.Len() == 0 {
		return nil
	}
	e := q.active.entries[0]
	q.take(e)
	e.attempts++
	e.changed = false
	return e
}

// fail puts a pod back that could not be placed.
func (q *queue) fail(e *entry, rejectedBy sets.Set[string]) {
	if q.entries[e.info.pod.UID] != e {
		return // deleted meanwhile
	}
	e.failedAt = q.now()
	e.rejectedBy = rejectedBy
	if rejectedBy.Len() == 0 || e.changed {
		q.wake(e)
		return
	}
	q.move(e, waiting)
}

// wake lets a waiting pod be tried again, at once or when its back-off is over.
func (q *queue) wake(e *entry) {
	if e.place == active || e.place == backoff {
		return
	}
	if e.backoffEnd().After(q.now()) {
		q.move(e, backoff)
	} else {
		q.move(e, active)
	}
}

// wakeIf wakes the waiting pods that helps says yes to.
func (q *queue) wakeIf(helps func(e *entry) bool) {
	var woken []*entry
	for _, e := range q.later.entries {
		if e.place == waiting && helps(e) {
			woken = append(woken, e)
		}
	}
	for _, e := range woken {
		q.wake(e)
	}
}

// next is when the first pod becomes ready by itself.
func (q *queue) next() (time.Time, bool) {
	if q.later.Len() == 0 {
		return time.Time{}, false
	}
	return q.later.entries[0].due, true
}

func (q *queue) release() {
	for q.later.Len() > 0 && !q.later.entries[0].due.After(q.now()) {
		q.move(q.later.entries[0], active)
	}
}

func (q *queue) move(e *entry, to place) {
	q.take(e)
	e.place = to
	switch to {
	case active:
		heap.Push(&q.active, e)
	case backoff:
		e.due = e.backoffEnd()
		heap.Push(&q.later, e)
	case waiting:
		e.due = e.failedAt.Add(maxUnschedulable)
		heap.Push(&q.later, e)
	}
}

func (q *queue) take(e *entry) {
	switch e.place {
	case active:
		heap.Remove(&q.active, e.index)
	case backoff, waiting:
		heap.Remove(&q.later, e.index)
	}
	e.place = inFlight
}

func (q *queue) pending(pod *corev1.Pod) *entry { return q.entries[pod.UID] }

type entryHeap struct {
	entries []*entry
	less    func(a, b *entry) bool
}

func (h *entryHeap) Len() int           { return len(h.entries) }
func (h *entryHeap) Less(i, j int) bool { return h.less(h.entries[i], h.entries[j]) }
func (h *entryHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].index, h.entries[j].index = i, j
}
func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(h.entries)
	h.entries = append(h.entries, e)
}
func (h *entryHeap) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	return e
}
