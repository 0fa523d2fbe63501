package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"proa/store"
)

const (
	dbDir      = "db"
	formatFile = "format"
	lockFile   = "lock"
	// format is the version of the directory's layout and of the encodings below.
	format = 1
)

// checkFormat refuses a directory of another format, and one whose database has gone. It writes the format of a new one.
func checkFormat(dir, db string, o Options) error {
	path := o.FS.PathJoin(dir, formatFile)
	text, err := readFile(o.FS, path)
	_, dbErr := o.FS.Stat(db)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if files, _ := o.FS.List(db); len(files) > 0 {
			return &DamageError{File: path, DataDir: o.DataDir, Err: errors.New("the file is missing")}
		}
		// The database comes first, so that a crash in between leaves no format without a database.
		if err := o.FS.MkdirAll(db, 0o700); err != nil {
			return fmt.Errorf("make store %s: %w", dir, err)
		}
		return writeFormat(dir, o.FS)
	case err != nil:
		return fmt.Errorf("open store: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case err != nil:
		return &DamageError{File: path, DataDir: o.DataDir, Err: fmt.Errorf("not a format version: %q", text)}
	case n != format:
		return fmt.Errorf("open store %s: it has format %d, this proa reads format %d", dir, n, format)
	case errors.Is(dbErr, os.ErrNotExist):
		return &DamageError{File: db, DataDir: o.DataDir, Err: errors.New("the directory is missing")}
	}
	return nil
}

func writeFormat(dir string, fs vfs.FS) error {
	path := fs.PathJoin(dir, formatFile)
	err := writeFile(fs, path+".new", strconv.Itoa(format)+"\n")
	if err == nil {
		err = fs.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err == nil {
		err = syncDir(fs, fs.PathDir(dir))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func readFile(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), errors.Join(err, f.Close())
}

func writeFile(fs vfs.FS, path, text string) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Keys of the database: 'm' and a name for what is known once, 'v', the revision in big endian and the key for a record.
const (
	metaPrefix   = 'm'
	recordPrefix = 'v'
)

// What is known once, each a revision.
const (
	compactedKey = string(rune(metaPrefix)) + "compacted"
	reservedKey  = string(rune(metaPrefix)) + "reserved"
)

func recordKey(revision int64, key string) []byte {
	k := make([]byte, 0, 9+len(key))
	k = append(k, recordPrefix)
	k = binary.BigEndian.AppendUint64(k, uint64(revision))
	return append(k, key...)
}

func recordsFrom(revision int64) []byte { return recordKey(revision, "") }
func recordsEnd() []byte                { return []byte{recordPrefix + 1} }

var errRecord = errors.New("malformed record")

func decodeKey(k []byte) (revision int64, key []byte, err error) {
	if len(k) < 9 || k[0] != recordPrefix {
		return 0, nil, fmt.Errorf("%w key %q", errRecord, k)
	}
	return int64(binary.BigEndian.Uint64(k[1:])), k[9:], nil
}

// A record's value is the flags, the create and previous revisions as varints, and the data.
const flagDeleted = 1

func appendRecord(batch *pebble.Batch, r store.Record) error {
	var header [1 + 2*binary.MaxVarintLen64]byte
	if r.Deleted {
		header[0] = flagDeleted
	}
	h := binary.AppendUvarint(header[:1], uint64(r.Create))
	h = binary.AppendUvarint(h, uint64(r.Prev))
	op := batch.SetDeferred(9+len(r.Key), len(h)+len(r.Data))
	op.Key[0] = recordPrefix
	binary.BigEndian.PutUint64(op.Key[1:], uint64(r.Revision))
	copy(op.Key[9:], r.Key)
	copy(op.Value, h)
	copy(op.Value[len(h):], r.Data)
	return op.Finish()
}

func batchSize(records []store.Record) int {
	n := 64
	for _, r := range records {
		n += len(r.Key) + len(r.Data) + 48
	}
	return n
}

// decodeRecord copies what it keeps.
func decodeRecord(revision int64, key, value []byte) (store.Record, error) {
	bad := func() (store.Record, error) {
		return store.Record{}, fmt.Errorf("%w %q at revision %d", errRecord, key, revision)
	}
	if len(value) == 0 {
		return bad()
	}
	r := store.Record{Key: string(key), Revision: revision, Deleted: value[0]&flagDeleted != 0}
	value = value[1:]
	create, n := binary.Uvarint(value)
	if n <= 0 {
		return bad()
	}
	value = value[n:]
	prev, n := binary.Uvarint(value)
	if n <= 0 {
		return bad()
	}
	r.Create, r.Prev = int64(create), int64(prev)
	if !r.Deleted {
		r.Data = append([]byte{}, value[n:]...)
	}
	return r, nil
}

func (b *Backend) readRevision(name string) (int64, error) {
	value, closer, err := b.db.Get([]byte(name))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	if len(value) != 8 {
		return 0, fmt.Errorf("%w of revision %q", errRecord, name)
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

func setRevision(batch *pebble.Batch, name string, revision int64) error {
	return batch.Set([]byte(name), binary.BigEndian.AppendUint64(nil, uint64(revision)), nil)
}
