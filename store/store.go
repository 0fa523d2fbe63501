// Package store keeps versions of opaque values under string keys, with one global revision that grows by one per
// commit. It owns revisions, snapshots, the change feed and history; it knows nothing of what the values mean. Backends
// (store/embedded, and the plain in-memory one here) make commits durable. store/storetest is the contract every backend
// passes.
//
// Reads are snapshots: a copy-on-write tree, never blocked by writes. A write is acknowledged only once the backend has
// made it durable, and becomes visible to readers and to the feed at that moment, in revision order.
package store

import (
	"errors"
	"iter"
)

// Errors that callers check with errors.Is.
var (
	// ErrCompacted: the wanted revision is older than the history kept.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFuture: the wanted revision has not been reached yet.
	ErrFuture = errors.New("revision is in the future")
	// ErrConflict: a precondition did not hold; a *ConflictError carries the present version.
	ErrConflict = errors.New("precondition not met")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrBroken: a write or sync went wrong before; the store refuses writes until it is opened anew.
	ErrBroken = errors.New("store is read-only after an I/O error")
)

// Value is what a key holds. Implementations are immutable once committed, except for Committed.
type Value interface {
	// Bytes is the durable form. It is called at most once per commit and must not depend on the revision.
	Bytes() []byte
	// Committed is called exactly once, before the value becomes visible, with the revisions it got.
	Committed(create, revision int64)
}

// Version is one value at one revision. Versions are shared and immutable.
type Version struct {
	Key string
	// Create is the revision at which the key came into being, Revision the one of this version.
	Create, Revision int64
	// Value is nil in the version that marks a deletion.
	Value Value
	// Prev is the version this one replaced, nil for a creation. Versions returned by a commit or by the feed have it;
	// those in snapshots, and Prev itself, do not, so that a key's past does not stay in memory.
	Prev *Version
}

// Any accepts every present state of a key in Write.Expect; Absent wants that the key does not exist.
const (
	Any    int64 = -1
	Absent int64 = 0
)

// Write is one change in a commit.
type Write struct {
	Key string
	// Value to store; nil deletes.
	Value Value
	// Expect is the revision that the key must have now, or Any, or Absent. A delete with Any of an absent key conflicts.
	Expect int64
}

// ConflictError says which write's precondition did not hold, and what the key holds instead (nil: nothing).
type ConflictError struct {
	Key     string
	Current *Version
}

func (e *ConflictError) Error() string { return e.Key + ": " + ErrConflict.Error() }
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Snapshot is the state at one revision. It is immutable, cheap to hold and safe for concurrent use.
type Snapshot interface {
	Revision() int64
	Get(key string) (*Version, bool)
	// Range yields the versions with the prefix in key order, beginning at the first key not less than start ("" for
	// the prefix itself).
	Range(prefix, start string) iter.Seq[*Version]
	// Count is the number of keys with the prefix, from the key not less than start on. It does not walk them.
	Count(prefix, start string) int
}

// Decode turns the durable form read back at start-up or from history into a value.
type Decode func(key string, data []byte) (Value, error)
