package store

import (
	"context"
	"errors"
	"iter"
)

// ErrFull: the backend has no room for more. Nothing of the commit was written; the store goes on once there is space.
var ErrFull = errors.New("no space left for the store")

// Record is a version in its durable form.
type Record struct {
	Key string
	// Create and Revision are those of the Version; Prev is the revision this record replaced, 0 for a creation.
	Create, Revision, Prev int64
	// Deleted marks a deletion; Data is nil then.
	Deleted bool
	Data    []byte
}

// Backend makes commits durable and keeps their history. A store calls Append from one goroutine at a time; History,
// Read and Compact may run beside it.
type Backend interface {
	// Load yields the newest record of every key that exists, in any order, and returns the revision up to which
	// history has been compacted and the last revision ever appended. After a crash the latter may be greater than
	// that, so that no revision of lost records is used again.
	Load(ctx context.Context, yield func(Record) error) (last, compacted int64, err error)
	// Append adds whole commits in revision order; it is all or nothing per call. With sync, they and everything
	// appended before are durable when it returns; Append(nil, true) only makes durable. After an error that is not
	// ErrFull the state of the call's records is unknown and no further Append succeeds.
	Append(records []Record, sync bool) error
	// History yields the records with first <= Revision <= last in revision order.
	History(ctx context.Context, first, last int64) iter.Seq2[Record, error]
	// Read returns the record that was written for key at revision, or ErrCompacted.
	Read(key string, revision int64) (Record, error)
	// Compact forgets what no state at revision or later needs: records that were replaced at revision or before.
	Compact(ctx context.Context, revision int64) error
	Close() error
}
