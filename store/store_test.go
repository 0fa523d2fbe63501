package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"proa/store"
	"proa/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) func() store.Backend {
		b := store.NewMemory()
		return func() store.Backend { return b }
	})
}

// gated is a memory backend whose appends can be held up and made to fail.
type gated struct {
	store.Backend
	gate  chan error // nil: open
	syncs atomic.Int64
	calls atomic.Int64
}

func (g *gated) Append(records []store.Record, sync bool) error {
	g.calls.Add(1)
	if g.gate != nil {
		if err := <-g.gate; err != nil {
			return err
		}
	}
	if sync {
		g.syncs.Add(1)
	}
	return g.Backend.Append(records, sync)
}

func open(t *testing.T, b store.Backend) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Backend: b, Decode: storetest.Decode})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(key string) store.Write {
	return store.Write{Key: key, Value: storetest.NewValue(key), Expect: store.Absent}
}

func TestNothingIsVisibleBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Backend: store.NewMemory(), gate: make(chan error)}
		s := open(t, g)
		done := make(chan error, 2)
		go func() { _, err := s.Commit(t.Context(), write("a")); done <- err }()
		synctest.Wait()
		if _, ok := s.Snapshot().Get("a"); ok || s.Revision() != 0 {
			t.Error("visible before the append has ended")
		}
		// A conflict with it waits for its outcome.
		go func() { _, err := s.Commit(t.Context(), write("a")); done <- err }()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("a commit was answered before the append has ended")
		}
		g.gate <- nil
		synctest.Wait()
		first, second := <-done, <-done
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), store.ErrConflict) {
			t.Errorf("errors %v, %v; want one conflict", first, second)
		}
		close(g.gate)
		s.Close()
	})
}

func TestGroupCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Backend: store.NewMemory(), gate: make(chan error)}
		s := open(t, g)
		for i := range 20 {
			go s.Commit(t.Context(), write(fmt.Sprint(i)))
			synctest.Wait()
		}
		g.gate <- nil
		synctest.Wait()
		g.gate <- nil
		synctest.Wait()
		if s.Revision() != 20 || g.calls.Load() != 2 {
			t.Errorf("revision %d after %d appends, want 20 after 2", s.Revision(), g.calls.Load())
		}
		close(g.gate)
		s.Close()
	})
}

func TestRelaxedIsSyncedWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gated{Backend: store.NewMemory()}
		s := open(t, g)
		defer s.Close()
		for i := range 3 {
			if _, err := s.CommitRelaxed(t.Context(), write(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		if n := g.syncs.Load(); n != 0 {
			t.Errorf("%d syncs at once", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := g.syncs.Load(); n != 1 {
			t.Errorf("%d syncs after a second, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := g.syncs.Load(); n != 1 {
			t.Errorf("%d syncs when idle, want 1", n)
		}
	})
}

func TestFailedAppend(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		broken bool
	}{
		{"write error", errors.New("input/output error"), true},
		{"full disk", fmt.Errorf("%w: 3 MiB left", store.ErrFull), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &gated{Backend: store.NewMemory(), gate: make(chan error)}
				s := open(t, g)
				go func() { g.gate <- nil }()
				if _, err := s.Commit(t.Context(), write("before")); err != nil {
					t.Fatal(err)
				}
				failed := make(chan error, 3)
				for i := range 3 { // the first is under way when the others queue up
					go func() { _, err := s.Commit(t.Context(), write(fmt.Sprint(i))); failed <- err }()
					synctest.Wait()
				}
				waited := make(chan error, 1)
				go func() { waited <- s.Wait(t.Context(), 3) }()
				g.gate <- c.err
				synctest.Wait()
				for range 3 {
					if err := <-failed; !errors.Is(err, c.err) || errors.Is(err, store.ErrBroken) != c.broken {
						t.Errorf("commit gave %v", err)
					}
				}
				if s.Revision() != 1 || s.Snapshot().Count("", "") != 1 {
					t.Error("something unacknowledged is visible")
				}
				close(g.gate)
				_, err := s.Commit(t.Context(), write("after"))
				if c.broken {
					if !errors.Is(err, store.ErrBroken) || !errors.Is(s.Err(), store.ErrBroken) {
						t.Errorf("commit of a broken store gave %v, its state is %v", err, s.Err())
					}
					if err := <-waited; !errors.Is(err, store.ErrBroken) {
						t.Errorf("waiter of a broken store got %v", err)
					}
				} else {
					if err != nil || s.Revision() != 2 || s.Err() != nil {
						t.Errorf("after a full disk: %v at revision %d, state %v", err, s.Revision(), s.Err())
					}
					s.Commit(t.Context(), write("more"))
					if err := <-waited; err != nil {
						t.Errorf("waiter got %v", err)
					}
				}
				s.Close()
			})
		})
	}
}

// The past of a key must not pile up in memory behind its newest version.
func TestOldVersionsAreFreed(t *testing.T) {
	s, err := store.Open(t.Context(), store.Config{Backend: discard{store.NewMemory()}, Decode: storetest.Decode, History: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var live atomic.Int64
	for range 2000 {
		v := storetest.NewValue("x")
		live.Add(1)
		runtime.AddCleanup(v, func(n *atomic.Int64) { n.Add(-1) }, &live)
		if _, err := s.CommitRelaxed(context.Background(), store.Write{Key: "k", Value: v, Expect: store.Any}); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for live.Load() > 200 && time.Now().Before(deadline) {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if n := live.Load(); n > 200 {
		t.Errorf("%d versions are alive, the log holds at most 64", n)
	}
}

// discard keeps no records.
type discard struct{ store.Backend }

func (discard) Append([]store.Record, bool) error { return nil }

func BenchmarkFollow(b *testing.B) {
	for _, cursors := range []int{1, 200, 2000} {
		b.Run(fmt.Sprint(cursors), func(b *testing.B) {
			b.ReportAllocs()
			s, err := store.Open(b.Context(), store.Config{Backend: discard{store.NewMemory()}, Decode: storetest.Decode})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var delivered atomic.Int64
			ctx, cancel := context.WithCancel(b.Context())
			stopped := make(chan struct{}, cursors)
			for range cursors {
				c, err := s.Follow(s.Revision())
				if err != nil {
					b.Fatal(err)
				}
				go func() {
					for {
						versions, err := c.Next(ctx)
						if err != nil {
							stopped <- struct{}{}
							return
						}
						delivered.Add(int64(len(versions)))
					}
				}()
			}
			n := int64(0)
			for b.Loop() {
				n++
				if _, err := s.CommitRelaxed(ctx, store.Write{Key: "k", Value: storetest.NewValue("x"), Expect: store.Any}); err != nil {
					b.Fatal(err)
				}
				// The backend keeps nothing to read back for a cursor that falls behind the log.
				for n%1024 == 0 && delivered.Load() < n*int64(cursors) {
					runtime.Gosched()
				}
			}
			for delivered.Load() < n*int64(cursors) {
				runtime.Gosched()
			}
			b.ReportMetric(float64(n*int64(cursors))/b.Elapsed().Seconds(), "deliveries/s")
			cancel()
			for range cursors {
				<-stopped
			}
		})
	}
}

// BenchmarkReplace commits to a large store of which somebody takes a snapshot every time.
func BenchmarkReplace(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Backend: discard{store.NewMemory()}, Decode: storetest.Decode})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const keys = 50000
	key := func(i int) string { return fmt.Sprintf("/pods/ns%d/pod%d", i%100, i) }
	for i := range keys {
		s.CommitRelaxed(b.Context(), write(key(i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := write(key(i * 7919 % keys))
		w.Expect = store.Any
		if _, err := s.CommitRelaxed(b.Context(), w); err != nil {
			b.Fatal(err)
		}
		s.Snapshot()
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Backend: discard{store.NewMemory()}, Decode: storetest.Decode})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range 10000 {
		s.CommitRelaxed(b.Context(), write(fmt.Sprintf("/pods/ns%d/pod%d", i%100, i)))
	}
	b.Run("Count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Snapshot().Count("/pods/ns50/", "")
		}
	})
	b.Run("Range", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range s.Snapshot().Range("/pods/", "") {
			}
		}
	})
}
