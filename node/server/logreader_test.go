package server

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const logged = `2024-05-01T10:00:00.000000001Z stdout F one
2024-05-01T10:00:01.5Z stderr F two
2024-05-01T10:00:02Z stdout P thr
2024-05-01T10:00:02.1Z stdout F ee
2024-05-01T10:00:03Z stdout F 
`

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(logged), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, query, want string }{
		{"all", "", "one\ntwo\nthree\n\n"},
		{"tail", "tailLines=1", "\n"},
		{"tail none", "tailLines=0", ""},
		{"tail more than there is", "tailLines=100", "one\ntwo\nthree\n\n"},
		{"limit", "limitBytes=5", "one\nt"},
		{"limit at the end of a line", "limitBytes=4", "one\n"},
		{"since time", "sinceTime=2024-05-01T10:00:01Z", "two\nthree\n\n"},
		{"timestamps", "timestamps=true&tailLines=3", "2024-05-01T10:00:02.000000000Z three\n2024-05-01T10:00:03.000000000Z \n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			query, err := url.ParseQuery(test.query)
			if err != nil {
				t.Fatal(err)
			}
			options, err := parseLogOptions(query, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			log := logReader{path: path, options: options, out: &out, flush: func() {}}
			if err := log.copy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogOptionsRefused(t *testing.T) {
	for _, query := range []string{"tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceTime=yesterday", "follow=perhaps"} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseLogOptions(values, time.Now()); err == nil {
			t.Errorf("%s is accepted", query)
		}
	}
}

// TestTailOffset compares with splitting, across the blocks that the file is read in.
func TestTailOffset(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "line %d%s\n", i, strings.Repeat("x", i%37))
	}
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := strings.SplitAfter(strings.TrimSuffix(text.String(), "\n"), "\n")
	for _, n := range []int{1, 2, 10, 1000, 4999, 5000, 6000} {
		got, err := tailOffset(file, int64(n))
		if err != nil {
			t.Fatal(err)
		}
		want := text.Len() - 1 - len(strings.Join(lines[max(0, len(lines)-n):], ""))
		if int(got) != want {
			t.Errorf("last %d lines begin at %d, want %d", n, got, want)
		}
	}
}

// buffer is a bytes.Buffer for a writer and a reader.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(data)
}

func (b *buffer) await(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		got := b.b.String()
		b.mu.Unlock()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("log is %q, want %q", got, want)
		}
	}
}

// TestFollow follows a log through a half-written line, a rotation and the end of the container. The kernel's
// notifications need real time and files.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	write := func(file *os.File, text string) {
		t.Helper()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *os.File {
		t.Helper()
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := open()
	write(file, "2024-05-01T10:00:00Z stdout F one\n2024-05-01T10:00:")
	var out buffer
	var running atomic.Bool
	running.Store(true)
	log := logReader{
		path: path, options: logOptions{follow: true, tail: -1, limit: -1}, out: &out, flush: func() {},
		running: func(context.Context) bool { return running.Load() },
	}
	done := make(chan error)
	go func() { done <- log.copy(t.Context()) }()
	out.await(t, "one\n")
	write(file, "01Z stdout F two\n")
	out.await(t, "one\ntwo\n")

	var previous *os.File
	err := rotate(path, 3, time.Now(), func() error {
		previous, file = file, open()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = previous.Close()
	write(file, "2024-05-01T10:00:02Z stdout F three\n")
	out.await(t, "one\ntwo\nthree\n")

	running.Store(false)
	write(file, "2024-05-01T10:00:03Z stdout F four\n")
	_ = file.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("follower does not end with its container")
	}
	out.await(t, "one\ntwo\nthree\nfour\n")
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	start := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)
	for i := range 6 {
		if err := os.WriteFile(path, []byte(fmt.Sprint(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		reopen := func() error { return os.WriteFile(path, nil, 0o600) }
		if err := rotate(path, 4, start.Add(time.Duration(i)*time.Minute), reopen); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{path, path + ".20240501-100300.gz", path + ".20240501-100400.gz", path + ".20240501-100500"}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files after rotation (-want +got):\n%s", diff)
	}
	if err := rotate(path, 4, start, func() error { return os.ErrPermission }); err == nil {
		t.Error("no error when the runtime does not reopen the log")
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("log is not put back: %v", err)
	}
	if err := RemoveLogs(path); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left after removal: %v", left)
	}
}
