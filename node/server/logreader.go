package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// timestampFormat is RFC 3339 with all nine digits of the second.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// A follower asks whether the container runs soon after it has begun and after the log was closed, then ever more rarely.
const (
	followFirst   = 5 * time.Millisecond
	followRecheck = 5 * time.Second
)

// errLimit ends the copying when the client's limit of bytes is reached.
var errLimit = errors.New("limit reached")

// logReader copies a container's log, in the format of CRI, to a client: each line is a timestamp, the stream's name, the
// tag F or P (P for a part of a line) and the text.
type logReader struct {
	path    string
	options logOptions
	out     io.Writer
	flush   func()
	running func(context.Context) bool

	recheck time.Duration
	written int64
	inLine  bool // the last thing written was a part of a line
}

func (l *logReader) copy(ctx context.Context) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if l.options.tail >= 0 {
		start, err := tailOffset(file, l.options.tail)
		if err != nil {
			return err
		}
		if _, err := file.Seek(start, io.SeekStart); err != nil {
			return err
		}
	}
	l.recheck = followFirst
	var changes <-chan uint32
	if l.options.follow {
		// Before the first read, so that no change after it is missed.
		if changes, err = watchDir(ctx, filepath.Dir(l.path)); err != nil {
			return err
		}
	}
	reader := bufio.NewReaderSize(file, 64<<10)
	var line []byte // may end in the middle, while its end is not yet written
	ending := false
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			if err := l.line(line); err != nil {
				if errors.Is(err, errLimit) {
					err = nil
				}
				return err
			}
			line = line[:0]
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case !errors.Is(err, io.EOF):
			return err
		case !l.options.follow:
			return nil
		}
		l.flush()
		if rotated, err := os.Open(l.path); err == nil {
			if same(file, rotated) {
				_ = rotated.Close()
			} else if ending {
				// The old file has been read once more after the new one was seen.
				_ = file.Close()
				file, ending, line = rotated, false, line[:0]
				reader.Reset(file)
				continue
			} else {
				_ = rotated.Close()
				ending = true
				continue
			}
		} else if ending {
			return nil
		}
		if ending {
			return nil
		}
		if ending = !l.await(ctx, changes); ending && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// await waits for something to read; false says that the container has ended and what there is now is all.
func (l *logReader) await(ctx context.Context, changes <-chan uint32) bool {
	timer := time.NewTimer(l.recheck)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case mask, ok := <-changes:
			if !ok {
				return false
			}
			if mask&unix.IN_CLOSE_WRITE != 0 {
				// Closed by the end of the container, of which the runtime's status tells a moment later, or by rotation.
				l.recheck = followFirst
				timer.Reset(l.recheck)
			}
			if mask&^unix.IN_CLOSE_WRITE != 0 {
				return true
			}
		case <-timer.C:
			if !l.running(ctx) {
				return false
			}
			l.recheck = min(2*l.recheck, followRecheck)
			timer.Reset(l.recheck)
		}
	}
}

func same(a, b *os.File) bool {
	first, err := a.Stat()
	if err != nil {
		return false
	}
	second, err := b.Stat()
	return err == nil && os.SameFile(first, second)
}

// line writes one line of the log to the client.
func (l *logReader) line(line []byte) error {
	stamp, text, partial, err := parseLine(line)
	if err != nil {
		return err
	}
	if !l.options.since.IsZero() && stamp.Before(l.options.since) {
		return nil
	}
	if l.options.timestamps && !l.inLine {
		text = append(append(stamp.AppendFormat(nil, timestampFormat), ' '), text...)
	}
	if !partial {
		text = append(text[:len(text):len(text)], '\n')
	}
	l.inLine = partial
	over := false
	if left := l.options.limit - l.written; l.options.limit >= 0 && int64(len(text)) >= left {
		text, over = text[:left], true
	}
	n, err := l.out.Write(text)
	l.written += int64(n)
	if err == nil && over {
		return errLimit
	}
	return err
}

// parseLine takes a line of a log in the format of CRI apart. text has no newline.
func parseLine(line []byte) (stamp time.Time, text []byte, partial bool, err error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	fields := bytes.SplitN(line, []byte{' '}, 4)
	if len(fields) < 3 {
		return stamp, nil, false, fmt.Errorf("log line %.80q is not in the format of cri", line)
	}
	stamp, err = time.Parse(time.RFC3339Nano, string(fields[0]))
	if err != nil {
		return stamp, nil, false, fmt.Errorf("log line %.80q: %w", line, err)
	}
	if len(fields) == 4 {
		text = fields[3]
	}
	tag, _, _ := bytes.Cut(fields[2], []byte{':'})
	return stamp, text, string(tag) == "P", nil
}

// tailOffset finds where the last lines of a file begin, reading it backwards.
func tailOffset(file *os.File, lines int64) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	if lines == 0 {
		return end, nil
	}
	block := make([]byte, 32<<10)
	var seen int64
	for at := end; at > 0; {
		size := min(int64(len(block)), at)
		at -= size
		if _, err := file.ReadAt(block[:size], at); err != nil {
			return 0, err
		}
		for i := size - 1; i >= 0; i-- {
			// The newline at the very end begins no line.
			if block[i] == '\n' && at+i != end-1 {
				if seen++; seen == lines {
					return at + i + 1, nil
				}
			}
		}
	}
	return 0, nil
}
