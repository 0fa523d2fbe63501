package store

import (
	"context"
	"iter"
	"sync"

	"github.com/tidwall/btree"
)

// memory is the backend that keeps everything in memory and loses it with the process.
type memory struct {
	mu              sync.RWMutex
	records         btree.Map[int64, map[string]Record] // by revision, then key
	last, compacted int64
}

// NewMemory returns a backend that keeps everything in memory. It may be opened again after a Close, as if the process
// had ended in good order.
func NewMemory() Backend {
	return new(memory)
}

func (m *memory) Load(_ context.Context, yield func(Record) error) (last, compacted int64, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	seen := make(map[string]bool)
	m.records.Reverse(func(_ int64, commit map[string]Record) bool {
		for key, r := range commit {
			if seen[key] {
				continue
			}
			seen[key] = true
			if r.Deleted {
				continue
			}
			if err = yield(r); err != nil {
				return false
			}
		}
		return true
	})
	return m.last, m.compacted, err
}

func (m *memory) Append(records []Record, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		commit, ok := m.records.Get(r.Revision)
		if !ok {
			commit = make(map[string]Record, 1)
			m.records.Set(r.Revision, commit)
		}
		commit[r.Key] = r
		m.last = r.Revision
	}
	return nil
}

func (m *memory) History(ctx context.Context, first, last int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var found []Record
		m.mu.RLock()
		m.records.Ascend(first, func(revision int64, commit map[string]Record) bool {
			if revision > last {
				return false
			}
			for _, r := range commit {
				found = append(found, r)
			}
			return true
		})
		m.mu.RUnlock()
		for _, r := range found {
			if err := ctx.Err(); err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (m *memory) Read(key string, revision int64) (Record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	commit, _ := m.records.Get(revision)
	r, ok := commit[key]
	if !ok {
		return Record{}, ErrCompacted
	}
	return r, nil
}

func (m *memory) Compact(_ context.Context, revision int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	forget := func(key string, revision int64) {
		if commit, ok := m.records.Get(revision); ok {
			delete(commit, key)
			if len(commit) == 0 {
				m.records.Delete(revision)
			}
		}
	}
	var superseded []Record
	m.records.Ascend(m.compacted+1, func(at int64, commit map[string]Record) bool {
		if at > revision {
			return false
		}
		for _, r := range commit {
			superseded = append(superseded, r)
		}
		return true
	})
	for _, r := range superseded {
		if r.Prev != 0 {
			forget(r.Key, r.Prev)
		}
		if r.Deleted {
			forget(r.Key, r.Revision)
		}
	}
	m.compacted = max(m.compacted, revision)
	return nil
}

func (m *memory) Close() error { return nil }
