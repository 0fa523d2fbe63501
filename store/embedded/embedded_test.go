package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"proa/store"
	"proa/store/embedded"
	"proa/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() store.Backend {
		dir := filepath.Join(t.TempDir(), "store")
		return func() store.Backend {
			b, err := embedded.Open(dir, embedded.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	})
}

func tryOpen(fs vfs.FS, dir string) (*store.Store, error) {
	b, err := embedded.Open(dir, embedded.Options{FS: fs, DataDir: "/data"})
	if err != nil {
		return nil, err
	}
	return store.Open(context.Background(), store.Config{Backend: b, Decode: storetest.Decode})
}

func open(t testing.TB, fs vfs.FS, dir string) *store.Store {
	t.Helper()
	s, err := tryOpen(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(key, text string) store.Write {
	return store.Write{Key: key, Value: storetest.NewValue(text), Expect: store.Any}
}

func put(t testing.TB, s *store.Store, key, text string) {
	t.Helper()
	if _, err := s.Commit(context.Background(), write(key, text)); err != nil {
		t.Fatal(err)
	}
}

// Every crash keeps all that was acknowledged, and a prefix of what was relaxed; no revision is given out twice.
func TestCrashClones(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs, "/store")
	defer s.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := int64(1); i <= 60; i++ {
		two := []store.Write{write(fmt.Sprint("a", i), ""), write(fmt.Sprint("b", i), strings.Repeat("x", 2000))}
		commit := s.Commit
		if i%3 == 0 {
			commit = s.CommitRelaxed
		}
		if _, err := commit(t.Context(), two...); err != nil {
			t.Fatal(err)
		}
		durable := i
		if i%3 == 0 {
			durable = i - 1
		}
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
		after := open(t, clone, "/store")
		if got := after.Revision(); got < i {
			t.Errorf("crash after %d: the store goes on after revision %d", i, got)
		}
		var got int64
		for v := range after.Snapshot().Range("", "") {
			got = max(got, v.Revision)
		}
		if got < durable || got > i {
			t.Errorf("crash after %d: newest commit %d, want %d to %d", i, got, durable, i)
		}
		for j := int64(1); j <= got; j++ {
			for _, key := range []string{"a", "b"} {
				if _, ok := after.Snapshot().Get(fmt.Sprint(key, j)); !ok {
					t.Errorf("crash after %d: revision %d has lost %s%d", i, got, key, j)
				}
			}
		}
		put(t, after, "next", "")
		after.Close()
	}
}

// A close in good order wastes no revision, and a follower goes over those that a crash has wasted.
func TestReservedRevisions(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := open(t, fs, "/store")
	put(t, s, "a", "")
	for range 5 {
		if _, err := s.CommitRelaxed(t.Context(), write("a", "")); err != nil {
			t.Fatal(err)
		}
	}
	clone := fs.CrashClone(vfs.CrashCloneCfg{})
	s.Close()
	s = open(t, fs, "/store")
	if got := s.Revision(); got != 6 {
		t.Errorf("revision %d after a close, want 6", got)
	}
	s.Close()

	crashed := open(t, clone, "/store")
	defer crashed.Close()
	if got := crashed.Revision(); got < 6 {
		t.Fatalf("revision %d after a crash, want 6 at least", got)
	}
	seen, err := crashed.Follow(6)
	if err != nil {
		t.Fatal(err)
	}
	put(t, crashed, "b", "")
	versions, err := seen.Next(t.Context())
	if err != nil || len(versions) != 1 || versions[0].Key != "b" {
		t.Errorf("followed from a lost revision: %d versions, %v; want b", len(versions), err)
	}
}

// injected lets everything pass until it is armed with the kind of operation that fails.
type injected struct {
	armed atomic.Bool
	kinds map[errorfs.OpKind]bool
}

func (i *injected) String() string { return "injected" }

func (i *injected) MaybeError(op errorfs.Op) error {
	if i.armed.Load() && i.kinds[op.Kind] {
		return errors.New("input/output error")
	}
	return nil
}

func TestInjectedErrors(t *testing.T) {
	for name, kinds := range map[string][]errorfs.OpKind{
		"write": {errorfs.OpFileWrite},
		"sync":  {errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			inject := &injected{kinds: make(map[errorfs.OpKind]bool)}
			for _, k := range kinds {
				inject.kinds[k] = true
			}
			s := open(t, errorfs.Wrap(mem, inject), "/store")
			put(t, s, "before", "1")
			inject.armed.Store(true)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					if _, err := s.Commit(context.Background(), write(fmt.Sprint(i), "")); !errors.Is(err, store.ErrBroken) {
						t.Errorf("commit gave %v, want ErrBroken", err)
					}
				})
			}
			wg.Wait()
			inject.armed.Store(false)
			if _, err := s.Commit(t.Context(), write("after", "")); !errors.Is(err, store.ErrBroken) {
				t.Errorf("commit after the error gave %v, want ErrBroken", err)
			}
			if v, ok := s.Snapshot().Get("before"); !ok || storetest.Text(t, v) != "1" || s.Revision() != 1 {
				t.Errorf("reads after the error: %v at revision %d", ok, s.Revision())
			}
			clone := mem.CrashClone(vfs.CrashCloneCfg{})
			if after := open(t, clone, "/store"); after.Snapshot().Count("before", "") != 1 {
				t.Error("acknowledged commit is lost")
			} else {
				after.Close()
			}
			s.Close()
		})
	}
}

// full is a file system whose free space the test sets.
type full struct {
	vfs.FS
	left *atomic.Uint64
}

func (f full) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: f.left.Load()}, nil
}

func TestFullDisk(t *testing.T) {
	fs := full{vfs.NewMem(), new(atomic.Uint64)}
	fs.left.Store(1 << 30)
	s := open(t, fs, "/store")
	defer s.Close()
	put(t, s, "a", "1")
	fs.left.Store(32 << 20)
	if _, err := s.Commit(t.Context(), write("b", "")); !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrBroken) {
		t.Errorf("write to a full disk gave %v, want ErrFull", err)
	}
	if _, err := s.Commit(t.Context(), store.Write{Key: "a", Expect: store.Any}); err != nil {
		t.Errorf("deletion on a full disk: %v", err)
	}
	fs.left.Store(1 << 30)
	put(t, s, "b", "1")
	if got := s.Revision(); got != 3 {
		t.Errorf("revision %d, want 3", got)
	}
}

func TestLocked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, nil, dir)
	if _, err := tryOpen(nil, dir); !errors.Is(err, embedded.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second open gave %v", err)
	}
	if _, err := embedded.Repair(dir, embedded.Options{}); !errors.Is(err, embedded.ErrLocked) {
		t.Errorf("repair of an open store gave %v", err)
	}
	s.Close()
	open(t, nil, dir).Close()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o700 {
		t.Errorf("directory has mode %o, want 700", got)
	}
}

func TestFormat(t *testing.T) {
	dir := t.TempDir()
	open(t, nil, dir).Close()
	file := filepath.Join(dir, "format")
	if err := os.WriteFile(file, []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(nil, dir); err == nil || !strings.Contains(err.Error(), "format 2") {
		t.Errorf("open of another format gave %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(nil, dir); !isDamage(err, "format") {
		t.Errorf("open without a format gave %v", err)
	}
	if err := os.WriteFile(file, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "db")); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(nil, dir); !isDamage(err, "db") {
		t.Errorf("open without a database gave %v", err)
	}
}

func isDamage(err error, file string) bool {
	d, ok := errors.AsType[*embedded.DamageError](err)
	return ok && strings.HasSuffix(d.File, file) && strings.Contains(err.Error(), "proa store repair --data-dir /data")
}

// killed makes a store with n commits and returns its directory as a crash leaves it.
func killed(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, nil, filepath.Join(dir, "live"))
	for i := range n {
		put(t, s, fmt.Sprint("k", i), strings.Repeat(fmt.Sprint(i%10), 1000))
	}
	if ok, err := vfs.Clone(vfs.Default, vfs.Default, filepath.Join(dir, "live"), filepath.Join(dir, "crashed")); err != nil || !ok {
		t.Fatal(ok, err)
	}
	s.Close()
	return filepath.Join(dir, "crashed")
}

func newestFile(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "db", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return files[len(files)-1]
}

// end is the offset behind the last byte of the file that is not zero.
func end(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.TrimRight(string(data), "\x00"))
}

func flip(t *testing.T, file string, offset int) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[offset] ^= 0x40
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTornTailIsCut(t *testing.T) {
	dir := killed(t, 20)
	log := newestFile(t, dir, "*.log")
	if err := os.Truncate(log, int64(end(t, log)-500)); err != nil {
		t.Fatal(err)
	}
	s := open(t, nil, dir)
	defer s.Close()
	if got := s.Revision(); got != 19 {
		t.Errorf("revision %d after the last record was torn, want 19", got)
	}
	put(t, s, "next", "")
}

func TestFlippedByteInLog(t *testing.T) {
	for _, c := range []struct {
		name string
		// commits in the log, and the per cent of it after which the byte is flipped
		commits, at int
	}{
		{"first record", 40, 0},
		{"middle", 40, 50},
		{"within one block", 10, 50},
		{"many blocks", 400, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := killed(t, c.commits)
			log := newestFile(t, dir, "*.log")
			flip(t, log, max(100, end(t, log)*c.at/100))
			_, err := tryOpen(nil, dir)
			if !isDamage(err, filepath.Base(log)) {
				t.Fatalf("open gave %v", err)
			}
			report, err := embedded.Repair(dir, embedded.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := c.commits * c.at / 100
			if len(report.Damage) == 0 || report.Keys < want-2 || report.Keys > want || !strings.Contains(report.String(), filepath.Base(log)) {
				t.Errorf("want about %d keys; report: %s", want, report)
			}
			if _, err := os.Stat(report.Backup); err != nil {
				t.Error(err)
			}
			s := open(t, nil, dir)
			defer s.Close()
			if s.Revision() != report.Revision || s.Snapshot().Count("", "") != report.Keys || s.Compacted() != report.Revision {
				t.Errorf("revision %d, %d keys; report: %s", s.Revision(), s.Snapshot().Count("", ""), report)
			}
			put(t, s, "next", "")
		})
	}
}

func TestFlippedByteInTable(t *testing.T) {
	// A second opening turns the log of the first into a table.
	dir := killed(t, 2000)
	open(t, nil, dir).Close()
	table := newestFile(t, dir, "*.sst")
	flip(t, table, end(t, table)/2)
	_, err := tryOpen(nil, dir)
	if !isDamage(err, filepath.Base(table)) {
		t.Fatalf("open gave %v", err)
	}
	report, err := embedded.Repair(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Damage) == 0 || report.Keys < 1000 || report.Keys >= 2000 {
		t.Errorf("report: %s", report)
	}
	s := open(t, nil, dir)
	defer s.Close()
	if s.Revision() != 2000 || s.Snapshot().Count("", "") != report.Keys {
		t.Errorf("revision %d, %d keys; report: %s", s.Revision(), s.Snapshot().Count("", ""), report)
	}
}

func TestRepairOfASoundStore(t *testing.T) {
	dir := killed(t, 5)
	report, err := embedded.Repair(dir, embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Damage) != 0 || report.Keys != 5 || report.Revision != 5 || report.Backup != "" {
		t.Errorf("report: %s", report)
	}
	s := open(t, nil, dir)
	defer s.Close()
	if s.Revision() != 5 {
		t.Errorf("revision %d, want 5", s.Revision())
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint(writers, "writers"), func(b *testing.B) {
			b.ReportAllocs()
			s := open(b, nil, b.TempDir())
			defer s.Close()
			text := strings.Repeat("x", 1024)
			var n atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range writers {
				wg.Go(func() {
					for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
						if _, err := s.Commit(context.Background(), write(fmt.Sprint("key", i), text)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}
