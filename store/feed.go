package store

import (
	"context"
	"errors"
	"slices"
	"sort"
)

// historyRead is about how many versions a cursor reads back from the backend at a time.
const historyRead = 512

// view is what is visible at one moment: the newest revision and the log of the latest versions. The log only grows at
// its end, beyond what older views show, or is copied; so a view never changes once published, but for the channel.
type view struct {
	revision int64
	// after: the log holds all versions with a greater revision. start numbers the first entry of log.
	after, start int64
	log          []*Version
	// changed is closed when a newer view has replaced this one.
	changed chan struct{}
	// err says why there will be no newer one.
	err error
}

// trim forgets about the oldest entries, so that at most about keep of them remain; commits stay whole.
func (v *view) trim(keep int) {
	cut := max(0, len(v.log)-keep)
	for cut > 0 && cut < len(v.log) && v.log[cut].Revision == v.log[cut-1].Revision {
		cut++
	}
	v.forget(cut)
}

func (v *view) forget(n int) {
	if n == 0 {
		return
	}
	v.after = v.log[n-1].Revision
	v.start += int64(n)
	v.log = slices.Clone(v.log[n:])
}

// find returns the index of the first entry later than revision.
func (v *view) find(revision int64) int {
	return sort.Search(len(v.log), func(i int) bool { return v.log[i].Revision > revision })
}

// replaceView publishes a changed copy of the view and wakes everyone who waits for it. The lock is held.
func (s *Store) replaceView(change func(*view)) {
	old := s.view.Load()
	v := *old
	v.changed = make(chan struct{})
	change(&v)
	s.view.Store(&v)
	close(old.changed)
}

// Cursor follows the feed. It holds nothing but a position: thousands are cheap, and a slow one costs no memory. A
// cursor is used by one goroutine at a time.
type Cursor struct {
	store *Store
	// after is the revision of the last version delivered; position the number of the next log entry, or -1 when
	// the cursor is behind the log and reads from the backend.
	after, position int64
}

// Follow returns a cursor that delivers every version later than revision after.
func (s *Store) Follow(after int64) (*Cursor, error) {
	v := s.view.Load()
	switch {
	case after < s.compacted.Load():
		return nil, ErrCompacted
	case after > v.revision:
		return nil, ErrFuture
	}
	return s.cursor(v, after), nil
}

func (s *Store) cursor(v *view, after int64) *Cursor {
	c := &Cursor{store: s, after: after, position: -1}
	if after >= v.after {
		c.position = v.start + int64(v.find(after))
	}
	return c
}

// Revision is the revision up to which the cursor has delivered everything.
func (c *Cursor) Revision() int64 { return c.after }

// Next blocks until there is something new and returns it: all visible versions that this cursor has not delivered yet,
// in revision order and whole commits at a time. The slice is shared and must not be changed. A cursor that fell behind
// the versions kept in memory gets them from the backend, in portions; behind the history kept there it gets
// ErrCompacted.
func (c *Cursor) Next(ctx context.Context) ([]*Version, error) {
	for {
		v := c.store.view.Load()
		versions, err := c.advance(ctx, v)
		switch {
		case err != nil:
			return nil, err
		case len(versions) > 0:
			return versions, nil
		case c.after < v.revision:
			continue // the portion read back was empty: revisions that a crash has lost
		case errors.Is(v.err, ErrClosed):
			return nil, ErrClosed
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TryNext returns what Next would, or nil where Next would block or fail.
func (c *Cursor) TryNext() []*Version {
	versions, err := c.advance(context.Background(), c.store.view.Load())
	if err != nil {
		return nil
	}
	return versions
}

// Changed returns a channel that is closed when there may be something new after what the cursor delivered, for use in a
// select; it may already be closed.
func (c *Cursor) Changed() <-chan struct{} {
	v := c.store.view.Load()
	if c.after < v.revision || errors.Is(v.err, ErrClosed) {
		ready := make(chan struct{})
		close(ready)
		return ready
	}
	return v.changed
}

func (c *Cursor) advance(ctx context.Context, v *view) ([]*Version, error) {
	if c.after >= v.revision {
		return nil, nil
	}
	if c.position < v.start && c.after < v.after {
		c.position = -1
		return c.readBack(ctx, v)
	}
	if c.position < v.start {
		c.position = v.start + int64(v.find(c.after))
	}
	versions := v.log[c.position-v.start : len(v.log) : len(v.log)]
	c.position += int64(len(versions))
	c.after = v.revision
	return versions, nil
}

// readBack reads the next portion of what the log no longer holds.
func (c *Cursor) readBack(ctx context.Context, v *view) ([]*Version, error) {
	s := c.store
	if c.after < s.compacted.Load() {
		return nil, ErrCompacted
	}
	var versions []*Version
	after := v.after
	for r, err := range s.backend.History(ctx, c.after+1, v.after) {
		if err != nil {
			return nil, s.historyError(c.after, err)
		}
		if n := len(versions); n >= historyRead && versions[n-1].Revision != r.Revision {
			after = versions[n-1].Revision
			break
		}
		version, err := s.version(r)
		if err != nil {
			return nil, err
		}
		if r.Prev != 0 {
			prev, err := s.readVersion(r.Key, r.Prev)
			if err != nil {
				return nil, s.historyError(c.after, err)
			}
			version.Prev = prev
		}
		versions = append(versions, version)
	}
	// A compaction that ran meanwhile may have taken records out of the middle.
	if c.after < s.compacted.Load() {
		return nil, ErrCompacted
	}
	c.after = after
	return versions, nil
}
