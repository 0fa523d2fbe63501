package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"proa/store"
)

// Report says what Repair found and did.
type Report struct {
	// Damage found, one line each; empty when the store is sound and was left alone.
	Damage []string
	// Keys that were kept, and the last revision among them.
	Keys     int
	Revision int64
	// Backup is where the damaged database has been put aside.
	Backup string
}

func (r *Report) String() string {
	if len(r.Damage) == 0 {
		return fmt.Sprintf("no damage found: %d keys, revision %d\n", r.Keys, r.Revision)
	}
	var b strings.Builder
	for _, d := range r.Damage {
		fmt.Fprintf(&b, "damage: %s\n", d)
	}
	fmt.Fprintf(&b, "salvaged %d keys up to revision %d; history before it is gone\n", r.Keys, r.Revision)
	fmt.Fprintf(&b, "the damaged database is kept in %s\n", r.Backup)
	return b.String()
}

// Repair salvages the newest readable version of every key of a damaged store. What was in damaged places is lost: such
// a key may be missing, have an older value, or be back after its deletion. The damaged files are put aside, not changed.
func Repair(dir string, o Options) (*Report, error) {
	o = o.withDefaults(dir)
	fs := o.FS
	if _, err := fs.Stat(fs.PathJoin(dir, dbDir)); err != nil {
		return nil, fmt.Errorf("repair store: %w", err)
	}
	lock, err := fs.Lock(fs.PathJoin(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("repair store %s: %w (%w)", dir, ErrLocked, err)
	}
	report, err := repair(dir, o)
	if err = errors.Join(err, lock.Close()); err != nil {
		return nil, fmt.Errorf("repair store %s: %w", dir, err)
	}
	return report, nil
}

func repair(dir string, o Options) (*Report, error) {
	fs := o.FS
	db, work, fresh := fs.PathJoin(dir, dbDir), fs.PathJoin(dir, "db.work"), fs.PathJoin(dir, "db.new")
	report := new(Report)
	if text, err := readFile(fs, fs.PathJoin(dir, formatFile)); err != nil || strings.TrimSpace(text) != strconv.Itoa(format) {
		report.Damage = append(report.Damage, fmt.Sprintf("%s: missing or unreadable", fs.PathJoin(dir, formatFile)))
	}
	for _, leftover := range []string{work, fresh} {
		if err := fs.RemoveAll(leftover); err != nil {
			return nil, err
		}
	}
	if ok, err := vfs.Clone(fs, fs, db, work); err != nil || !ok {
		return nil, fmt.Errorf("copy %s: %w", db, err)
	}
	defer fs.RemoveAll(work)
	cut, err := cutLogs(fs, work)
	if err != nil {
		return nil, err
	}
	for _, d := range cut {
		report.Damage = append(report.Damage, strings.ReplaceAll(d.String(), work, db))
	}
	old := newBackend(dir, o, io.NopCloser(nil))
	if err := old.open(work); err != nil {
		return nil, fmt.Errorf("the database cannot be opened even without its damaged parts, restore a snapshot: %w", err)
	}
	records, lost := salvage(old)
	if reserved, err := old.readRevision(reservedKey); err == nil {
		report.Revision = reserved
	}
	// The damaged copy is thrown away, so its own end does not matter.
	_ = old.Close()
	for _, err := range lost {
		report.Damage = append(report.Damage, strings.ReplaceAll(err.Error(), work, db))
	}
	for _, r := range records {
		report.Revision = max(report.Revision, r.Revision)
		if !r.Deleted {
			report.Keys++
		}
	}
	if len(report.Damage) == 0 {
		return report, nil
	}
	if err := rebuild(dir, fresh, o, records, report.Revision); err != nil {
		return nil, err
	}
	if report.Backup, err = putAside(fs, dir, db); err != nil {
		return nil, err
	}
	if err := fs.Rename(fresh, db); err != nil {
		return nil, err
	}
	return report, writeFormat(dir, fs)
}

// salvage reads what can be read, from the newest record to the oldest, going around what cannot.
func salvage(b *Backend) (records []store.Record, lost []error) {
	seen := make(map[string]bool)
	end := recordsEnd()
	step := int64(1)
	for end != nil {
		// Portions of one revision range each, so that one damaged block does not hide what is before it.
		next, err := salvageBefore(b.db, end, func(r store.Record) {
			step = 1
			if !seen[r.Key] {
				seen[r.Key] = true
				records = append(records, r)
			}
		})
		if err == nil {
			break
		}
		if len(lost) == 0 || lost[len(lost)-1].Error() != err.Error() {
			lost = append(lost, err)
		}
		revision := next - step
		step *= 2
		if revision <= 0 {
			break
		}
		end = recordsFrom(revision)
	}
	return records, lost
}

// salvageBefore yields the records before end backwards; on an error it returns the revision it had reached.
func salvageBefore(db *pebble.DB, end []byte, yield func(store.Record)) (reached int64, err error) {
	reached = 1 << 62
	if revision, _, err := decodeKey(end); err == nil {
		reached = revision
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: recordsFrom(0), UpperBound: end})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.Last(); ok; ok = it.Prev() {
		revision, key, err := decodeKey(it.Key())
		if err != nil {
			return reached, err
		}
		reached = revision
		value, err := it.ValueAndErr()
		if err != nil {
			return reached, err
		}
		r, err := decodeRecord(revision, key, value)
		if err != nil {
			return reached, err
		}
		yield(r)
	}
	return reached, it.Error()
}

// rebuild makes a new database at path that holds the records as if history had just been compacted.
func rebuild(dir, path string, o Options, records []store.Record, revision int64) error {
	b := newBackend(dir, o, io.NopCloser(nil))
	if err := b.open(path); err != nil {
		return err
	}
	err := b.guard(func() error {
		for part := range slices.Chunk(records, 1024) {
			batch := b.db.NewBatch()
			for _, r := range part {
				if r.Deleted {
					continue
				}
				r.Prev = 0
				if err := appendRecord(batch, r); err != nil {
					return err
				}
			}
			if err := batch.Commit(pebble.NoSync); err != nil {
				return err
			}
		}
		batch := b.db.NewBatch()
		if err := setRevision(batch, compactedKey, revision); err != nil {
			return err
		}
		return batch.Commit(pebble.Sync)
	})
	return errors.Join(err, b.Close())
}

// putAside renames the damaged database to the first free name.
func putAside(fs vfs.FS, dir, db string) (string, error) {
	for n := 1; ; n++ {
		backup := fs.PathJoin(dir, fmt.Sprintf("db.damaged-%d", n))
		if _, err := fs.Stat(backup); errors.Is(err, os.ErrNotExist) {
			return backup, fs.Rename(db, backup)
		}
	}
}
