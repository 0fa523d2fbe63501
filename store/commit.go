package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// relaxedSync is how long a relaxed commit may stay without an fsync.
const relaxedSync = time.Second

// commit is one accepted set of writes on its way to the backend.
type commit struct {
	durable bool
	records []Record
	// feed is what the caller and the followers get; stored is what snapshots hold, nil for a deletion. Only feed
	// versions have Prev: a stored version that kept its predecessor would keep all of the key's past in memory.
	feed, stored []*Version
	// done is closed when the commit has become visible, or has failed with err.
	done chan struct{}
	err  error
}

// acceptance is the newest unpublished change of a key: its new version, nil when deleted.
type acceptance struct {
	stored *Version
	commit *commit
}

// Commit applies all writes as one revision, or none of them, and returns the new versions in the order of the writes.
// They are durable and visible when it returns. A precondition that does not hold gives a *ConflictError, whose current
// version is visible. ctx is looked at before the commit is accepted; after that Commit waits for the outcome.
func (s *Store) Commit(ctx context.Context, writes ...Write) ([]*Version, error) {
	return s.commit(ctx, true, writes)
}

// CommitRelaxed is Commit without the wait for the fsync, which follows within a second: a crash of the machine, or of the
// process in the same moment, may lose the commit, though never one that came before a surviving one. No other commit
// ever gets the revision of a lost one.
func (s *Store) CommitRelaxed(ctx context.Context, writes ...Write) ([]*Version, error) {
	return s.commit(ctx, false, writes)
}

func (s *Store) commit(ctx context.Context, durable bool, writes []Write) ([]*Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if len(writes) == 0 {
		return nil, nil
	}
	for i, w := range writes {
		for _, other := range writes[:i] {
			if w.Key == other.Key {
				return nil, fmt.Errorf("commit writes %s twice", w.Key)
			}
		}
	}
	// A lost race is noticed here before the work of encoding.
	s.mu.Lock()
	refusal := s.check(writes)
	s.mu.Unlock()
	if refusal != nil {
		return nil, refusal.wait()
	}
	c := &commit{durable: durable, records: make([]Record, len(writes)), done: make(chan struct{})}
	for i, w := range writes {
		c.records[i].Key = w.Key
		if w.Value != nil {
			c.records[i].Data = w.Value.Bytes()
		}
	}
	s.mu.Lock()
	if refusal = s.check(writes); refusal == nil {
		s.accept(c, writes)
	}
	s.mu.Unlock()
	if refusal != nil {
		return nil, refusal.wait()
	}
	s.signal()
	<-c.done
	if c.err != nil {
		return nil, c.err
	}
	return c.feed, nil
}

// refusal is a failed check. A conflict with a change that is not visible yet is only told once it is.
type refusal struct {
	err   error
	after *commit
}

func (r *refusal) wait() error {
	if r.after == nil {
		return r.err
	}
	<-r.after.done
	if r.after.err != nil {
		return r.after.err
	}
	return r.err
}

// check looks whether writes may be accepted now. The lock is held.
func (s *Store) check(writes []Write) *refusal {
	if s.err != nil {
		return &refusal{err: s.err}
	}
	for _, w := range writes {
		current, pending := s.current(w.Key)
		var holds bool
		switch w.Expect {
		case Any:
			holds = w.Value != nil || current != nil
		case Absent:
			holds = w.Value != nil && current == nil
		default:
			holds = current != nil && current.Revision == w.Expect
		}
		if !holds {
			return &refusal{&ConflictError{w.Key, current}, pending}
		}
	}
	return nil
}

// current is the newest accepted version of key, and the commit that brings it unless that is visible already.
func (s *Store) current(key string) (*Version, *commit) {
	if a, ok := s.accepted[key]; ok {
		return a.stored, a.commit
	}
	v, _ := s.tree.Get(key)
	return v, nil
}

// accept gives the commit its revision and queues it. The lock is held and the check has passed.
func (s *Store) accept(c *commit, writes []Write) {
	s.last++
	c.feed = make([]*Version, len(writes))
	c.stored = make([]*Version, len(writes))
	for i, w := range writes {
		prev, _ := s.current(w.Key)
		feed := &Version{Key: w.Key, Create: s.last, Revision: s.last, Value: w.Value, Prev: prev}
		record := &c.records[i]
		if prev != nil {
			feed.Create = prev.Create
			record.Prev = prev.Revision
		}
		record.Create, record.Revision, record.Deleted = feed.Create, s.last, w.Value == nil
		stored := feed
		switch {
		case w.Value == nil:
			stored = nil
		case prev != nil:
			stored = &Version{Key: w.Key, Create: feed.Create, Revision: s.last, Value: w.Value}
		}
		c.feed[i], c.stored[i] = feed, stored
		s.accepted[w.Key] = acceptance{stored, c}
	}
	s.queue = append(s.queue, c)
}

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the committer: it writes what has been queued while the write before was under way, and publishes it.
func (s *Store) run() {
	var unsynced <-chan time.Time // set while relaxed commits wait for a sync
	for {
		select {
		case <-s.wake:
		case <-unsynced:
			unsynced = nil
			if err := s.backend.Append(nil, true); err != nil {
				s.fail(nil, err)
			}
			continue
		}
		s.mu.Lock()
		batch, closing := s.queue, errors.Is(s.err, ErrClosed)
		s.queue = nil
		s.mu.Unlock()

		// Relaxed commits in front need not wait for the sync that those behind them want.
		relaxed := 0
		for relaxed < len(batch) && !batch[relaxed].durable {
			relaxed++
		}
		ok := true
		if relaxed > 0 {
			ok = s.write(batch[:relaxed], false, batch)
			if ok && unsynced == nil {
				unsynced = time.After(relaxedSync)
			}
		}
		if ok && relaxed < len(batch) {
			if s.write(batch[relaxed:], true, batch[relaxed:]) {
				unsynced = nil
			}
		}
		if closing {
			if unsynced != nil {
				if err := s.backend.Append(nil, true); err != nil {
					s.log.Error("last sync of the store", "error", err)
				}
			}
			return
		}
	}
}

// write appends the batch and publishes it. When that fails, everything in failed and all that was accepted later fails
// too, since it may build on the batch.
func (s *Store) write(batch []*commit, sync bool, failed []*commit) bool {
	n := 0
	for _, c := range batch {
		n += len(c.records)
	}
	records := make([]Record, 0, n)
	for _, c := range batch {
		records = append(records, c.records...)
	}
	if err := s.backend.Append(records, sync); err != nil {
		s.fail(failed, err)
		return false
	}
	for _, c := range batch {
		c.records = nil
		for _, v := range c.feed {
			if v.Value != nil {
				v.Value.Committed(v.Create, v.Revision)
			}
		}
	}
	s.publish(batch)
	for _, c := range batch {
		close(c.done)
	}
	s.retain(batch[len(batch)-1].feed[0].Revision)
	return true
}

// fail drops every commit that is not published. Unless the backend only had no room, the store stays broken.
func (s *Store) fail(commits []*commit, err error) {
	s.mu.Lock()
	if errors.Is(err, ErrFull) {
		s.log.Warn("commit refused", "error", err)
	} else {
		s.log.Error("store is broken", "error", err)
		err = fmt.Errorf("%w: %w", ErrBroken, err)
		if s.err == nil {
			s.err = err
		}
		s.replaceView(func(v *view) { v.err = err })
	}
	commits = append(commits[:len(commits):len(commits)], s.queue...)
	s.queue = nil
	clear(s.accepted)
	s.last = s.view.Load().revision
	s.mu.Unlock()
	for _, c := range commits {
		c.err = err
		close(c.done)
	}
}

// publish makes the commits of batch visible at once.
func (s *Store) publish(batch []*commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range batch {
		n += len(c.feed)
		for i, v := range c.feed {
			if stored := c.stored[i]; stored != nil {
				s.tree.Set(v.Key, stored)
			} else {
				s.tree.Delete(v.Key)
			}
			if s.accepted[v.Key].commit == c {
				delete(s.accepted, v.Key)
			}
		}
	}
	s.cached.Store(nil)
	s.replaceView(func(v *view) {
		if len(v.log)+n > s.history {
			v.trim(s.history / 2)
		}
		for _, c := range batch {
			v.log = append(v.log, c.feed...)
		}
		v.revision = batch[len(batch)-1].feed[0].Revision
	})
}
