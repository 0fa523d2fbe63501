// Package embedded keeps a store on the local disk, in a Pebble database. It owns the layout of the store's directory:
//
//	format   the version of this layout
//	lock     held by the process that has the store open
//	db/      the database: one record per version, keyed by revision and key
//
// A value is written once: the newest version of a key and its history are the same records, ordered by revision. What
// compaction removes follows from the records themselves: a record that replaced another one names it. The state is read
// back by walking the records from the newest to the oldest.
//
// Torn writes at the end of the log, which a crash leaves behind, are cut off when the database is opened. Any other
// damage is a *DamageError; Repair salvages what it can.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"proa/store"
)

// ErrLocked: another process has the directory open.
var ErrLocked = errors.New("in use by another process")

// Options of a Backend. The zero value is ready for use.
type Options struct {
	// FS holds the files. Default: the operating system's.
	FS  vfs.FS
	Log *slog.Logger
	// DataDir is what the repair command in errors is told to work on. Default: the directory that is opened.
	DataDir string
	// Reserve is the free space on the disk below which commits are refused, so that deletions and the database's own
	// upkeep still have room. Default 64 MiB; deletions may use three quarters of it. Negative means no check.
	Reserve int64
}

func (o Options) withDefaults(dir string) Options {
	if o.FS == nil {
		// Not pebble's own default, which watches the disk's health with a ticking goroutine per file.
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DataDir == "" {
		o.DataDir = dir
	}
	if o.Reserve == 0 {
		o.Reserve = 64 << 20
	}
	return o
}

// Backend is a store.Backend on the local disk.
type Backend struct {
	dir  string
	o    Options
	db   *pebble.DB
	lock io.Closer
	// breakage gets its error once; broken is closed then.
	breakage atomic.Pointer[error]
	broken   chan struct{}
	breaking sync.Once
	closing  atomic.Bool
	// compacted is the persisted compaction revision, changed by Compact only.
	compacted int64
	// last is the newest revision appended; reserved the persisted one that no revision without a sync goes beyond.
	// Append and Close change them.
	last, reserved int64
}

var _ store.Backend = (*Backend)(nil)

// Open opens the store in dir, or makes a new one.
func Open(dir string, o Options) (*Backend, error) {
	o = o.withDefaults(dir)
	lock, err := prepare(dir, o)
	if err != nil {
		return nil, err
	}
	b := newBackend(dir, o, lock)
	db := o.FS.PathJoin(dir, dbDir)
	found, err := findDamage(o.FS, db)
	switch {
	case err != nil:
		err = fmt.Errorf("open store %s: %w", dir, err)
	case found != nil:
		err = &DamageError{File: found.file, DataDir: o.DataDir, Err: fmt.Errorf("unreadable from byte %d on: %w", found.offset, found.err)}
	default:
		err = b.openNew(db)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return b, nil
}

func newBackend(dir string, o Options, lock io.Closer) *Backend {
	return &Backend{dir: dir, o: o, lock: lock, broken: make(chan struct{})}
}

// openNew opens the database at path, which may be empty. The first log of a new database is begun in an older encoding
// that cannot tell damage from a torn end, so a new one is opened twice.
func (b *Backend) openNew(path string) error {
	files, err := b.o.FS.List(path)
	if err != nil {
		return fmt.Errorf("open store %s: %w", b.dir, err)
	}
	if len(files) == 0 {
		if err := b.open(path); err != nil {
			return err
		}
		if err := b.guard(b.db.Close); err != nil {
			return fmt.Errorf("make store %s: %w", b.dir, err)
		}
	}
	return b.open(path)
}

// open opens the database at path.
func (b *Backend) open(path string) error {
	o := &pebble.Options{
		FS:                          b.o.FS,
		FormatMajorVersion:          pebble.FormatValueSeparation,
		CacheSize:                   4 << 20,
		MemTableSize:                4 << 20,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                256,
		Logger:                      logger{b},
		EventListener: &pebble.EventListener{
			BackgroundError: b.backgroundError,
			DataCorruption: func(i pebble.DataCorruptionInfo) {
				b.fail(b.damage(i.Path, i.Details))
			},
		},
	}
	o.Experimental.FileCacheShards = 1
	o.Experimental.CompactionScheduler = new(compactions)
	return b.guard(func() error {
		db, err := pebble.Open(path, o)
		if err != nil {
			if pebble.IsCorruptionError(err) {
				return b.damage("", err)
			}
			return fmt.Errorf("open store %s: %w", b.dir, err)
		}
		b.db = db
		return nil
	})
}

// Load implements store.Backend.
func (b *Backend) Load(ctx context.Context, yield func(store.Record) error) (last, compacted int64, err error) {
	err = b.guard(func() error {
		if compacted, err = b.readRevision(compactedKey); err != nil {
			return b.readError(err)
		}
		reserved, err := b.readRevision(reservedKey)
		if err != nil {
			return b.readError(err)
		}
		it, err := b.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: recordsFrom(0), UpperBound: recordsEnd()})
		if err != nil {
			return b.readError(err)
		}
		last = max(compacted, reserved)
		err = newest(it, func(r store.Record) error {
			last = max(last, r.Revision)
			if r.Deleted {
				return nil
			}
			return yield(r)
		})
		return b.readError(errors.Join(err, it.Close()))
	})
	b.compacted = compacted
	b.last, b.reserved = last, last
	return last, compacted, err
}

// newest yields the latest record of every key, deletions included.
func newest(it *pebble.Iterator, yield func(store.Record) error) error {
	seen := make(map[string]struct{})
	for ok := it.Last(); ok; ok = it.Prev() {
		revision, key, err := decodeKey(it.Key())
		if err != nil {
			return err
		}
		if _, ok := seen[string(key)]; ok {
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		r, err := decodeRecord(revision, key, value)
		if err != nil {
			return err
		}
		seen[r.Key] = struct{}{}
		if err := yield(r); err != nil {
			return err
		}
	}
	return it.Error()
}

// reservation is how many revisions may be given out after one sync and without another.
const reservation = 4096

// Append implements store.Backend. Records without a sync are lost with the process when it is killed within the moment
// that the database takes to hand them to the system, and with the machine. Someone may have seen their revisions: these
// are reserved by a record with a sync beforehand, so that no other commit ever gets them.
func (b *Backend) Append(records []store.Record, sync bool) error {
	if err := b.room(records); err != nil {
		return err
	}
	last := b.last
	if n := len(records); n > 0 {
		last = records[n-1].Revision
	}
	reserve := !sync && last > b.reserved
	option := pebble.NoSync
	if sync || reserve {
		option = pebble.Sync
	}
	err := b.guard(func() error {
		if len(records) == 0 {
			return b.db.LogData(nil, option)
		}
		batch := b.db.NewBatchWithSize(batchSize(records))
		defer batch.Close()
		for _, r := range records {
			if err := appendRecord(batch, r); err != nil {
				return err
			}
		}
		if reserve {
			if err := setRevision(batch, reservedKey, last+reservation); err != nil {
				return err
			}
		}
		return batch.Commit(option)
	})
	if err != nil {
		err = fmt.Errorf("write store %s: %w", b.dir, err)
		b.fail(err)
		return err
	}
	b.last = last
	if reserve {
		b.reserved = last + reservation
	}
	return nil
}

// room refuses records when the disk is nearly full.
func (b *Backend) room(records []store.Record) error {
	if b.o.Reserve < 0 || len(records) == 0 {
		return nil
	}
	usage, err := b.o.FS.GetDiskUsage(b.dir)
	if err != nil {
		return nil // not every file system can tell
	}
	need := b.o.Reserve / 4
	for _, r := range records {
		if !r.Deleted {
			need = b.o.Reserve
			break
		}
	}
	if usage.AvailBytes < uint64(need) {
		return fmt.Errorf("%w: %s has %d MiB left, %d MiB are kept in reserve",
			store.ErrFull, b.dir, usage.AvailBytes>>20, b.o.Reserve>>20)
	}
	return nil
}

// historyPortion is how many records History reads at a time.
const historyPortion = 256

// History implements store.Backend.
func (b *Backend) History(ctx context.Context, first, last int64) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		from, end := recordsFrom(first), recordsFrom(last+1)
		for from != nil {
			var records []store.Record
			err := b.guard(func() (err error) {
				records, from, err = b.portion(ctx, from, end)
				return err
			})
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
			if err != nil {
				yield(store.Record{}, b.readError(err))
				return
			}
		}
	}
}

// portion reads records from the first key on; next is where to go on, nil at the end.
func (b *Backend) portion(ctx context.Context, from, end []byte) (records []store.Record, next []byte, err error) {
	it, err := b.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		if len(records) == historyPortion {
			return records, append([]byte(nil), it.Key()...), nil
		}
		revision, key, err := decodeKey(it.Key())
		if err != nil {
			return records, nil, err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return records, nil, err
		}
		r, err := decodeRecord(revision, key, value)
		if err != nil {
			return records, nil, err
		}
		records = append(records, r)
	}
	return records, nil, it.Error()
}

// Read implements store.Backend.
func (b *Backend) Read(key string, revision int64) (r store.Record, err error) {
	err = b.guard(func() error {
		value, closer, err := b.db.Get(recordKey(revision, key))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return store.ErrCompacted
		case err != nil:
			return b.readError(err)
		}
		r, err = decodeRecord(revision, []byte(key), value)
		return errors.Join(b.readError(err), closer.Close())
	})
	return r, err
}

// compactPortion is how many records are looked at for one batch of removals.
const compactPortion = 1024

// Compact implements store.Backend. It is not for concurrent use.
func (b *Backend) Compact(ctx context.Context, revision int64) error {
	if revision <= b.compacted {
		return nil
	}
	batch := b.db.NewBatch()
	defer func() { batch.Close() }()
	n, at := 0, b.compacted
	// Each batch moves the compaction revision with the removals that it stands for, so an interrupted compaction goes
	// on where it was.
	flush := func(to int64) error {
		if err := setRevision(batch, compactedKey, to); err != nil {
			return err
		}
		if err := b.guard(func() error { return batch.Commit(pebble.NoSync) }); err != nil {
			return err
		}
		b.compacted = to
		batch.Close()
		batch, n = b.db.NewBatch(), 0
		return ctx.Err()
	}
	for r, err := range b.History(ctx, b.compacted+1, revision) {
		if err != nil {
			return err
		}
		if n >= compactPortion && r.Revision != at {
			if err := flush(at); err != nil {
				return err
			}
		}
		n, at = n+1, r.Revision
		if r.Prev != 0 {
			if err := batch.Delete(recordKey(r.Prev, r.Key), nil); err != nil {
				return err
			}
		}
		if r.Deleted {
			if err := batch.Delete(recordKey(r.Revision, r.Key), nil); err != nil {
				return err
			}
		}
	}
	return flush(revision)
}

// Close implements store.Backend.
func (b *Backend) Close() error {
	if b.closing.Swap(true) {
		return nil
	}
	if b.breakage.Load() == nil {
		return errors.Join(b.guard(b.release), b.guard(b.db.Close), b.lock.Close())
	}
	// A broken database may be unable to close. Its lock is kept then: its goroutines might still touch the files.
	done := make(chan struct{})
	go func() {
		defer func() {
			if recover() == nil {
				close(done)
			}
		}()
		_ = b.db.Close()
	}()
	select {
	case <-done:
		return b.lock.Close()
	case <-time.After(3 * time.Second):
		return fmt.Errorf("close store %s: the database does not end", b.dir)
	}
}

// release gives the reserved revisions back: after a close in good order none has been lost.
func (b *Backend) release() error {
	if b.reserved <= b.last {
		return nil
	}
	batch := b.db.NewBatch()
	defer batch.Close()
	if err := setRevision(batch, reservedKey, b.last); err != nil {
		return err
	}
	return batch.Commit(pebble.Sync)
}

// prepare makes or checks dir and locks it.
func prepare(dir string, o Options) (io.Closer, error) {
	db := o.FS.PathJoin(dir, dbDir)
	if err := o.FS.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make store %s: %w", dir, err)
	}
	if o.FS == vfs.Default {
		if err := os.Chmod(dir, 0o700); err != nil {
			return nil, fmt.Errorf("protect store: %w", err)
		}
	}
	lock, err := o.FS.Lock(o.FS.PathJoin(dir, lockFile))
	if err != nil {
		if _, statErr := o.FS.Stat(dir); statErr == nil && !errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("store %s is %w (%w)", dir, ErrLocked, err)
		}
		return nil, fmt.Errorf("lock store %s: %w", dir, err)
	}
	if err := checkFormat(dir, db, o); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}
