package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// damaged is a log that cannot be read beyond offset.
type damaged struct {
	file   string
	offset int64
	err    error
}

func (d damaged) String() string {
	return fmt.Sprintf("%s: unreadable from byte %d on: %v", d.file, d.offset, d.err)
}

// logs lists the write-ahead logs in db, oldest first.
func logs(fs vfs.FS, db string) ([]string, error) {
	names, err := fs.List(db)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return path.Ext(name) != ".log" })
	slices.Sort(names)
	return names, nil
}

// findDamage returns the first damaged log, nil if all can be read.
func findDamage(fs vfs.FS, db string) (*damaged, error) {
	names, err := logs(fs, db)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if d, err := checkLog(fs, fs.PathJoin(db, name), i == len(names)-1); d != nil || err != nil {
			return d, err
		}
	}
	return nil, nil
}

// checkLog reads the log to its end. An unclean end is what a crash leaves in the last one.
func checkLog(fs vfs.FS, file string, last bool) (*damaged, error) {
	number, err := strconv.ParseUint(strings.TrimSuffix(path.Base(file), ".log"), 10, 64)
	if err != nil {
		return nil, nil // no log of the database
	}
	f, err := fs.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reader := logReader(record.NewReader, f, number)
	var good int64
	for {
		var r io.Reader
		if r, err = reader.Next(); err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		switch {
		case err == nil:
			good = reader.Offset()
		case errors.Is(err, io.EOF):
			return nil, nil
		case errors.Is(err, record.ErrUnexpectedEOF) && last:
			text, err := readFile(fs, file)
			if err != nil || !syncedBeyond([]byte(text), uint32(number), good) {
				return nil, err
			}
			return &damaged{file, good, errors.New("invalid record, followed by later ones")}, nil
		case errors.Is(err, record.ErrInvalidChunk), errors.Is(err, record.ErrZeroedChunk), errors.Is(err, record.ErrUnexpectedEOF):
			return &damaged{file, good, err}, nil
		default:
			return nil, err
		}
	}
}

// The log consists of blocks, these of chunks: checksum, length, encoding, log number, the offset up to which the log was
// durable when the chunk was written, and the payload, all in little endian. No chunk begins so close to the end of a
// block that its header would not fit.
const (
	blockSize       = 32 << 10
	chunkHeader     = 19
	chunkEncoding   = 6
	chunkLog        = 7
	chunkSynced     = 11
	firstSyncedKind = 9 // the four encodings that carry the durable offset
	lastSyncedKind  = 12
)

// syncedBeyond tells damage from a torn end. The log is unreadable at offset; if a valid chunk later on says that the log
// had been durable beyond offset, the crash cannot have torn it there. The database looks for such chunks as well, but not
// in the block that the unreadable chunk is in, which for short records holds dozens of commits.
func syncedBeyond(log []byte, number uint32, offset int64) bool {
	if rest := blockSize - offset%blockSize; rest < chunkHeader {
		offset += rest
	}
	for at := int(offset) + 1; at+chunkHeader <= len(log); at++ {
		kind := log[at+chunkEncoding]
		if kind < firstSyncedKind || kind > lastSyncedKind || binary.LittleEndian.Uint32(log[at+chunkLog:]) != number {
			continue
		}
		end := at + chunkHeader + int(binary.LittleEndian.Uint16(log[at+4:]))
		if end > len(log) || binary.LittleEndian.Uint64(log[at+chunkSynced:]) <= uint64(offset) {
			continue
		}
		sum := crc32.Checksum(log[at+chunkEncoding:end], crc32.MakeTable(crc32.Castagnoli))
		if binary.LittleEndian.Uint32(log[at:]) == (sum>>15|sum<<17)+0xa282ead8 {
			return true
		}
	}
	return false
}

// logReader calls record.NewReader, whose second parameter has a type that only inference can name.
func logReader[N ~uint64](open func(io.Reader, N) *record.Reader, f io.Reader, number uint64) *record.Reader {
	return open(f, N(number))
}

// cutLogs cuts the first damaged log where the damage begins and drops those after it, which build on it.
func cutLogs(fs vfs.FS, db string) ([]damaged, error) {
	found, err := findDamage(fs, db)
	if err != nil || found == nil {
		return nil, err
	}
	text, err := readFile(fs, found.file)
	if err != nil {
		return nil, err
	}
	if err := writeFile(fs, found.file, text[:min(int64(len(text)), found.offset)]); err != nil {
		return nil, err
	}
	cut := []damaged{*found}
	names, err := logs(fs, db)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if file := fs.PathJoin(db, name); file > found.file {
			if err := fs.Remove(file); err != nil {
				return nil, err
			}
			cut = append(cut, damaged{file, 0, errors.New("follows a damaged log")})
		}
	}
	return cut, nil
}
