package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Config of a Store. The zero value keeps everything in memory, but cannot read anything back.
type Config struct {
	// Backend makes commits durable; the store closes it. Default NewMemory().
	Backend Backend
	// Decode reads values back at start-up and from history.
	Decode Decode
	Log    *slog.Logger
	// History is the number of versions kept in memory for the feed and for reads of recent revisions. Older ones
	// are read back from the backend. Default 4096.
	History int
	// Retention is how long at least the backend keeps versions that have been replaced. Default 10 minutes.
	Retention time.Duration
}

// Store keeps versions of values under keys. It is safe for concurrent use.
type Store struct {
	backend   Backend
	decode    Decode
	log       *slog.Logger
	history   int
	retention time.Duration

	// view is what readers and cursors see; a new one replaces it with every publication.
	view atomic.Pointer[view]
	// cached is the snapshot of the present revision, nil until someone asks for it.
	cached    atomic.Pointer[snapshot]
	compacted atomic.Int64

	mu sync.Mutex
	// tree is the published state; last the newest revision accepted, published or not.
	tree *tree
	last int64
	// accepted holds the newest unpublished change of each key.
	accepted map[string]acceptance
	// queue holds the accepted commits that the committer has not taken yet, in revision order.
	queue []*commit
	// err refuses further commits: ErrClosed or ErrBroken.
	err error

	wake       chan struct{}
	committer  sync.WaitGroup
	background sync.WaitGroup
	compaction sync.Mutex
	// marks say which revision was reached when, oldest first; only the committer uses them.
	marks []mark
	// stop ends background compactions.
	ctx  context.Context
	stop context.CancelFunc
}

type mark struct {
	at       time.Time
	revision int64
}

// Open reads the backend's state and returns the store, ready for use.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Backend == nil {
		c.Backend = NewMemory()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.History <= 0 {
		c.History = 4096
	}
	if c.Retention <= 0 {
		c.Retention = 10 * time.Minute
	}
	if c.Decode == nil {
		c.Decode = func(key string, _ []byte) (Value, error) {
			return nil, fmt.Errorf("decode %s: the store was opened without Decode", key)
		}
	}
	s := &Store{
		backend:   c.Backend,
		decode:    c.Decode,
		log:       c.Log,
		history:   c.History,
		retention: c.Retention,
		tree:      newTree(),
		accepted:  make(map[string]acceptance),
		wake:      make(chan struct{}, 1),
	}
	last, compacted, err := c.Backend.Load(ctx, func(r Record) error {
		v, err := s.version(r)
		if err != nil {
			return err
		}
		s.tree.Set(v.Key, v)
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load store: %w", err), c.Backend.Close())
	}
	s.last = last
	s.compacted.Store(compacted)
	s.marks = []mark{{time.Now(), last}}
	s.view.Store(&view{revision: last, after: last, changed: make(chan struct{})})
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.committer.Go(s.run)
	return s, nil
}

// Close completes the commits that were accepted, makes everything durable and closes the backend. Snapshots stay valid;
// commits, cursors and waiters get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if errors.Is(s.err, ErrClosed) {
		s.mu.Unlock()
		return nil
	}
	broken := s.err
	s.err = ErrClosed
	s.mu.Unlock()
	s.signal()
	s.committer.Wait()
	s.stop()
	s.background.Wait()

	s.mu.Lock()
	s.replaceView(func(v *view) { v.err = ErrClosed })
	s.mu.Unlock()
	if err := s.backend.Close(); err != nil && broken == nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// Err says why commits are refused: ErrClosed, ErrBroken, or nil.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Revision is the newest visible revision.
func (s *Store) Revision() int64 { return s.view.Load().revision }

// Compacted is the oldest revision that can still be read; following is possible after it.
func (s *Store) Compacted() int64 { return s.compacted.Load() }

// Wait returns once revision is visible.
func (s *Store) Wait(ctx context.Context, revision int64) error {
	for {
		v := s.view.Load()
		switch {
		case v.revision >= revision:
			return nil
		case v.err != nil:
			return v.err
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Snapshot is the state at the newest visible revision.
func (s *Store) Snapshot() Snapshot {
	if snap := s.cached.Load(); snap != nil {
		return snap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot()
}

// snapshot is called with the lock held.
func (s *Store) snapshot() *snapshot {
	if snap := s.cached.Load(); snap != nil {
		return snap
	}
	snap := &snapshot{s.view.Load().revision, s.tree.Copy()}
	s.cached.Store(snap)
	return snap
}

// version turns a record into a version of its own, ready to be seen.
func (s *Store) version(r Record) (*Version, error) {
	v := &Version{Key: r.Key, Create: r.Create, Revision: r.Revision}
	if r.Deleted {
		return v, nil
	}
	value, err := s.decode(r.Key, r.Data)
	if err != nil {
		return nil, fmt.Errorf("read %s at revision %d: %w", r.Key, r.Revision, err)
	}
	value.Committed(r.Create, r.Revision)
	v.Value = value
	return v, nil
}
