package store

import (
	"context"
	"fmt"
	"time"
)

// SnapshotAt is the state at an older revision: ErrCompacted when that is no longer kept, ErrFuture when it has not been
// reached. Its cost grows with the number of versions that came later.
func (s *Store) SnapshotAt(ctx context.Context, revision int64) (Snapshot, error) {
	s.mu.Lock()
	v := s.view.Load()
	switch {
	case revision > v.revision:
		s.mu.Unlock()
		return nil, ErrFuture
	case revision < s.compacted.Load():
		s.mu.Unlock()
		return nil, ErrCompacted
	case revision == v.revision:
		newest := s.snapshot()
		s.mu.Unlock()
		return newest, nil
	}
	past := s.tree.Copy()
	s.mu.Unlock()
	undo := func(key string, prev *Version) {
		if prev == nil {
			past.Delete(key)
		} else {
			past.Set(key, prev)
		}
	}
	for i := len(v.log) - 1; i >= 0 && v.log[i].Revision > revision; i-- {
		undo(v.log[i].Key, v.log[i].Prev)
	}
	if revision < v.after {
		if err := s.undoHistory(ctx, revision, v.after, undo); err != nil {
			return nil, err
		}
	}
	return &snapshot{revision, past}, nil
}

// undoHistory calls undo for every key that changed after revision, up to last, with the version it had at revision.
func (s *Store) undoHistory(ctx context.Context, revision, last int64, undo func(string, *Version)) error {
	seen := make(map[string]bool)
	for r, err := range s.backend.History(ctx, revision+1, last) {
		if err != nil {
			return s.historyError(revision, err)
		}
		// Only the first change after revision knows the version before it.
		if seen[r.Key] {
			continue
		}
		seen[r.Key] = true
		if r.Prev == 0 {
			undo(r.Key, nil)
			continue
		}
		prev, err := s.readVersion(r.Key, r.Prev)
		if err != nil {
			return s.historyError(revision, err)
		}
		undo(r.Key, prev)
	}
	if revision < s.compacted.Load() {
		return ErrCompacted
	}
	return nil
}

func (s *Store) readVersion(key string, revision int64) (*Version, error) {
	r, err := s.backend.Read(key, revision)
	if err != nil {
		return nil, err
	}
	return s.version(r)
}

// historyError is the error of a read of what came after revision: a compaction that overtook it is the likely cause.
func (s *Store) historyError(revision int64, err error) error {
	if revision < s.compacted.Load() {
		return ErrCompacted
	}
	return fmt.Errorf("read history after revision %d: %w", revision, err)
}

// Compact forgets the states before revision: reading and following from older ones gives ErrCompacted.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	s.compaction.Lock()
	defer s.compaction.Unlock()
	s.mu.Lock()
	v := s.view.Load()
	switch {
	case revision > v.revision:
		s.mu.Unlock()
		return ErrFuture
	case revision <= s.compacted.Load():
		s.mu.Unlock()
		return nil
	}
	s.compacted.Store(revision)
	if revision > v.after {
		s.replaceView(func(v *view) { v.forget(v.find(revision)) })
	}
	s.mu.Unlock()
	if err := s.backend.Compact(ctx, revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return nil
}

// retain compacts what has been kept long enough. It is called with every publication, so that an idle store needs no
// timer.
func (s *Store) retain(revision int64) {
	now := time.Now()
	if n := len(s.marks); n == 0 || now.Sub(s.marks[n-1].at) >= s.retention/8 {
		s.marks = append(s.marks, mark{now, revision})
	}
	var target int64
	for len(s.marks) > 0 && now.Sub(s.marks[0].at) >= s.retention {
		target = s.marks[0].revision
		s.marks = s.marks[1:]
	}
	if target <= s.compacted.Load() {
		return
	}
	s.background.Go(func() {
		if err := s.Compact(s.ctx, target); err != nil && s.ctx.Err() == nil {
			s.log.Warn("compaction", "revision", target, "error", err)
		}
	})
}
