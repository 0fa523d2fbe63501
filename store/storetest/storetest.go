// Package storetest is the contract of package store: Run checks a store on any backend against a simple model.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"proa/store"
)

// Value is a store.Value for tests: a text that notices when the contract of Committed is broken.
type Value struct {
	Text             string
	create, revision atomic.Int64
}

// NewValue returns a value that holds text.
func NewValue(text string) *Value { return &Value{Text: text} }

// Bytes implements store.Value.
func (v *Value) Bytes() []byte { return []byte(v.Text) }

// Committed implements store.Value.
func (v *Value) Committed(create, revision int64) {
	if v.revision.Swap(revision) != 0 {
		panic("value committed twice: " + v.Text)
	}
	v.create.Store(create)
}

// Decode is the store.Decode for Value.
func Decode(_ string, data []byte) (store.Value, error) { return NewValue(string(data)), nil }

// Text of a version; "" for a deletion. It fails the test when the value does not know the version's revisions.
func Text(t testing.TB, v *store.Version) string {
	t.Helper()
	if v.Value == nil {
		return ""
	}
	value := v.Value.(*Value)
	if c, r := value.create.Load(), value.revision.Load(); c != v.Create || r != v.Revision {
		t.Errorf("%s: value was told create %d, revision %d; its version has %d, %d", v.Key, c, r, v.Create, v.Revision)
	}
	return value.Text
}

// Run checks the contract. open returns a function that opens the same state again each time it is called, after the
// store opened before has been closed.
func Run(t *testing.T, open func(t *testing.T) (reopen func() store.Backend)) {
	start := func(t *testing.T, history int) (*store.Store, func() *store.Store) {
		backend := open(t)
		next := func() *store.Store {
			t.Helper()
			s, err := store.Open(context.Background(), store.Config{Backend: backend(), Decode: Decode, History: history})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		return next(), next
	}
	for _, c := range []struct {
		name    string
		history int
		run     func(*testing.T, *store.Store, func() *store.Store)
	}{
		{"Preconditions", 0, preconditions},
		{"Atomic", 0, atomicCommit},
		{"Order", 0, order},
		{"Relaxed", 0, relaxed},
		{"Concurrent", 0, concurrent},
		{"ConflictIsVisible", 0, conflictIsVisible},
		{"Follow", 0, follow},
		{"FollowFromDisk", 16, follow},
		{"Compaction", 0, compaction},
		{"Random", 0, random},
		{"RandomFromDisk", 16, random},
		{"Closed", 0, afterClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, reopen := start(t, c.history)
			c.run(t, s, reopen)
		})
	}
	t.Run("Retention", func(t *testing.T) { retention(t, open) })
}

func put(t testing.TB, s *store.Store, key, text string, expect int64) *store.Version {
	t.Helper()
	v, err := s.Commit(context.Background(), store.Write{Key: key, Value: NewValue(text), Expect: expect})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return v[0]
}

func remove(t testing.TB, s *store.Store, key string) *store.Version {
	t.Helper()
	v, err := s.Commit(context.Background(), store.Write{Key: key, Expect: store.Any})
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	return v[0]
}

func preconditions(t *testing.T, s *store.Store, _ func() *store.Store) {
	first := put(t, s, "a", "1", store.Absent)
	second := put(t, s, "a", "2", first.Revision)
	if second.Create != first.Revision || second.Revision != first.Revision+1 || second.Prev.Revision != first.Revision {
		t.Errorf("update of %+v gave %+v", first, second)
	}
	for _, c := range []struct {
		name string
		w    store.Write
		want *store.Version
	}{
		{"create of a present key", store.Write{Key: "a", Value: NewValue("x"), Expect: store.Absent}, second},
		{"update of an old revision", store.Write{Key: "a", Value: NewValue("x"), Expect: first.Revision}, second},
		{"delete of an old revision", store.Write{Key: "a", Expect: first.Revision}, second},
		{"update of an absent key", store.Write{Key: "b", Value: NewValue("x"), Expect: 1}, nil},
		{"delete of an absent key", store.Write{Key: "b", Expect: store.Any}, nil},
	} {
		_, err := s.Commit(t.Context(), c.w)
		conflict, ok := errors.AsType[*store.ConflictError](err)
		switch {
		case !ok || !errors.Is(err, store.ErrConflict):
			t.Errorf("%s: error %v, want a conflict", c.name, err)
		case conflict.Key != c.w.Key:
			t.Errorf("%s: conflict names %q", c.name, conflict.Key)
		case (conflict.Current == nil) != (c.want == nil),
			c.want != nil && conflict.Current.Revision != c.want.Revision:
			t.Errorf("%s: present version %+v, want %+v", c.name, conflict.Current, c.want)
		}
	}
	if got := s.Revision(); got != second.Revision {
		t.Errorf("refused commits moved the revision to %d", got)
	}
	gone := remove(t, s, "a")
	if gone.Value != nil || gone.Create != first.Revision || Text(t, gone.Prev) != "2" {
		t.Errorf("deletion is %+v", gone)
	}
	if again := put(t, s, "a", "3", store.Absent); again.Create != again.Revision || again.Prev != nil {
		t.Errorf("creation after a deletion is %+v", again)
	}
	if _, err := s.Commit(t.Context(), store.Write{Key: "c", Value: NewValue("")}, store.Write{Key: "c"}); err == nil {
		t.Error("a commit may write a key twice")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Commit(ctx, store.Write{Key: "d", Value: NewValue("")}); !errors.Is(err, context.Canceled) {
		t.Errorf("commit after cancellation: %v", err)
	}
}

func atomicCommit(t *testing.T, s *store.Store, _ func() *store.Store) {
	put(t, s, "taken", "", store.Absent)
	before := s.Revision()
	_, err := s.Commit(t.Context(),
		store.Write{Key: "one", Value: NewValue("1")},
		store.Write{Key: "taken", Value: NewValue("2"), Expect: store.Absent})
	if !errors.Is(err, store.ErrConflict) {
		t.Errorf("error %v, want a conflict", err)
	}
	if _, ok := s.Snapshot().Get("one"); ok || s.Revision() != before {
		t.Error("a refused commit left something")
	}
	versions, err := s.Commit(t.Context(),
		store.Write{Key: "two", Value: NewValue("2")},
		store.Write{Key: "one", Value: NewValue("1")})
	if err != nil {
		t.Fatal(err)
	}
	if versions[0].Key != "two" || versions[1].Key != "one" || versions[0].Revision != versions[1].Revision {
		t.Errorf("versions %+v %+v", versions[0], versions[1])
	}
}

func order(t *testing.T, s *store.Store, _ func() *store.Store) {
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprintf("/pods/ns%d/p%d", i%3, i))
	}
	keys = append(keys, "/pods/", "/podsx/a", "/a", "/pod", "\xff\xff", "\xff\xff1")
	for _, i := range rand.Perm(len(keys)) {
		put(t, s, keys[i], keys[i], store.Absent)
	}
	slices.Sort(keys)
	snap := s.Snapshot()
	for _, c := range []struct{ prefix, start string }{
		{"", ""}, {"/pods/", ""}, {"/pods/ns1/", ""}, {"/pods/", "/pods/ns1/p2"}, {"/pods/", "/pods/ns1/p2\x00"},
		{"/pods/", "/a"}, {"/pods/", "/z"}, {"/none/", ""}, {"\xff", ""}, {"\xff\xff", "\xff\xff1"},
	} {
		var want, got []string
		for _, key := range keys {
			if strings.HasPrefix(key, c.prefix) && key >= c.start {
				want = append(want, key)
			}
		}
		for v := range snap.Range(c.prefix, c.start) {
			got = append(got, v.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("range of %q from %q:\n%s", c.prefix, c.start, diff)
		}
		if n := snap.Count(c.prefix, c.start); n != len(want) {
			t.Errorf("count of %q from %q is %d, want %d", c.prefix, c.start, n, len(want))
		}
	}
	for range snap.Range("", "") {
		break // a walk may end early
	}
}

func relaxed(t *testing.T, s *store.Store, reopen func() *store.Store) {
	for i := range 50 {
		commit := s.CommitRelaxed
		if i%7 == 0 {
			commit = s.Commit
		}
		v, err := commit(t.Context(), store.Write{Key: fmt.Sprint(i), Value: NewValue(""), Expect: store.Absent})
		if err != nil {
			t.Fatal(err)
		}
		if v[0].Revision != int64(i+1) {
			t.Fatalf("commit %d got revision %d", i, v[0].Revision)
		}
		if got, ok := s.Snapshot().Get(fmt.Sprint(i)); !ok || got.Revision != v[0].Revision {
			t.Fatalf("commit %d is not visible", i)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := reopen().Snapshot().Count("", ""); n != 50 {
		t.Errorf("%d keys after a close in good order, want 50", n)
	}
}

// concurrent has several writers count in the same keys, each step on top of what it read.
func concurrent(t *testing.T, s *store.Store, reopen func() *store.Store) {
	const writers, steps, keys = 8, 40, 3
	cursor, err := s.Follow(0)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range steps {
				key := fmt.Sprint((w + i) % keys)
				for {
					write := store.Write{Key: key, Value: NewValue("1"), Expect: store.Absent}
					if v, ok := s.Snapshot().Get(key); ok {
						write.Value, write.Expect = NewValue(Text(t, v)+"1"), v.Revision
					}
					if _, err := s.Commit(context.Background(), write); err == nil {
						break
					} else if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	check := func(s *store.Store) {
		total := 0
		for v := range s.Snapshot().Range("", "") {
			total += len(Text(t, v))
		}
		if total != writers*steps || s.Revision() != writers*steps {
			t.Errorf("%d steps at revision %d, want %d", total, s.Revision(), writers*steps)
		}
	}
	check(s)
	for want := int64(1); want <= writers*steps; {
		versions, err := cursor.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			if v.Revision != want {
				t.Fatalf("feed has revision %d, want %d", v.Revision, want)
			}
			want++
		}
	}
	s.Close()
	check(reopen())
}

// conflictIsVisible checks that who lost a race can read what it lost against.
func conflictIsVisible(t *testing.T, s *store.Store, _ func() *store.Store) {
	for i := range 50 {
		key := fmt.Sprint(i)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := s.Commit(context.Background(), store.Write{Key: key, Value: NewValue(""), Expect: store.Absent})
				conflict, ok := errors.AsType[*store.ConflictError](err)
				if !ok {
					return
				}
				if got, ok := s.Snapshot().Get(key); !ok || got.Revision != conflict.Current.Revision {
					t.Errorf("conflict with revision %d, which is not visible", conflict.Current.Revision)
				}
			})
		}
		wg.Wait()
	}
}

func follow(t *testing.T, s *store.Store, reopen func() *store.Store) {
	const n = 100
	for i := range n {
		put(t, s, fmt.Sprint("k", i%10), fmt.Sprint(i), store.Any)
	}
	remove(t, s, "k0")
	all := func(s *store.Store, after int64) []string {
		c, err := s.Follow(after)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for c.Revision() < s.Revision() {
			versions, err := c.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range versions {
				line := fmt.Sprintf("%d %s %d %q", v.Revision, v.Key, v.Create, Text(t, v))
				if v.Prev != nil {
					line += fmt.Sprintf(" after %d %q", v.Prev.Revision, Text(t, v.Prev))
				}
				lines = append(lines, line)
			}
		}
		if more := c.TryNext(); more != nil {
			t.Errorf("more after the end: %v", more)
		}
		return lines
	}
	var want []string
	for i := range n {
		line := fmt.Sprintf("%d k%d %d %q", i+1, i%10, i%10+1, fmt.Sprint(i))
		if i >= 10 {
			line += fmt.Sprintf(" after %d %q", i+1-10, fmt.Sprint(i-10))
		}
		want = append(want, line)
	}
	want = append(want, fmt.Sprintf("%d k0 1 %q after %d %q", n+1, "", n-9, fmt.Sprint(n-10)))
	for _, after := range []int64{0, 1, 50, n, n + 1} {
		if diff := cmp.Diff(want[after:], all(s, after), cmpEmpty); diff != "" {
			t.Errorf("feed after %d:\n%s", after, diff)
		}
	}
	if _, err := s.Follow(n + 2); !errors.Is(err, store.ErrFuture) {
		t.Errorf("follow from the future: %v", err)
	}
	s.Close()
	s = reopen()
	put(t, s, "new", "x", store.Absent)
	want = append(want, fmt.Sprintf("%d new %d %q", n+2, n+2, "x"))
	if diff := cmp.Diff(want[30:], all(s, 30), cmpEmpty); diff != "" {
		t.Errorf("feed after a restart:\n%s", diff)
	}
	// A waiting cursor wakes up, and gives up with its context.
	c, err := s.Follow(s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, err := c.Next(t.Context())
		got <- err
	}()
	put(t, s, "wake", "", store.Absent)
	if err := <-got; err != nil {
		t.Errorf("woken cursor: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cursor after its deadline: %v", err)
	}
	if err := s.Wait(t.Context(), s.Revision()); err != nil {
		t.Errorf("wait for the present revision: %v", err)
	}
}

var cmpEmpty = cmp.Transformer("empty", func(s []string) string { return strings.Join(s, "\n") })

func compaction(t *testing.T, s *store.Store, reopen func() *store.Store) {
	for i := range 40 {
		put(t, s, fmt.Sprint("k", i%4), fmt.Sprint(i), store.Any)
	}
	remove(t, s, "k3")
	const at = 30
	want := state(t, s, at)
	if err := s.Compact(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	check := func(s *store.Store) {
		t.Helper()
		if got := s.Compacted(); got != at {
			t.Errorf("compacted to %d, want %d", got, at)
		}
		if _, err := s.SnapshotAt(t.Context(), at-1); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("snapshot of a compacted revision: %v", err)
		}
		if _, err := s.Follow(at - 1); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("follow from a compacted revision: %v", err)
		}
		if diff := cmp.Diff(want, state(t, s, at)); diff != "" {
			t.Errorf("state at the compacted revision:\n%s", diff)
		}
		c, err := s.Follow(at)
		if err != nil {
			t.Fatal(err)
		}
		if versions, err := c.Next(t.Context()); err != nil || versions[0].Revision != at+1 || versions[0].Prev == nil {
			t.Errorf("first after compaction: %v %v", versions, err)
		}
	}
	check(s)
	s.Close()
	s = reopen()
	check(s)
	if err := s.Compact(t.Context(), s.Revision()+1); !errors.Is(err, store.ErrFuture) {
		t.Errorf("compaction of the future: %v", err)
	}
	// Compacting everything, with a deletion as the last change, keeps the revision.
	last := s.Revision()
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = reopen()
	if s.Revision() != last || s.Snapshot().Count("", "") != 3 {
		t.Errorf("after compacting everything: revision %d, %d keys; want %d, 3", s.Revision(), s.Snapshot().Count("", ""), last)
	}
}

func state(t testing.TB, s *store.Store, revision int64) map[string]string {
	t.Helper()
	snap, err := s.SnapshotAt(context.Background(), revision)
	if err != nil {
		t.Fatalf("snapshot at %d: %v", revision, err)
	}
	if snap.Revision() != revision {
		t.Errorf("snapshot at %d says %d", revision, snap.Revision())
	}
	m := make(map[string]string)
	for v := range snap.Range("", "") {
		m[v.Key] = fmt.Sprintf("%s@%d,%d", Text(t, v), v.Create, v.Revision)
	}
	return m
}

// random runs commits of one to three writes against a map, remembers the state at every revision, and compares all of
// them at random moments and after restarts.
func random(t *testing.T, s *store.Store, reopen func() *store.Store) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Log("seed", seed)
		}
	}()
	rnd := rand.New(rand.NewPCG(seed, 0))
	states := []map[string]string{{}}
	creates := make(map[string]int64)
	revisions := make(map[string]int64)
	compacted := int64(0)
	for step := range 400 {
		switch p := rnd.IntN(100); {
		case p < 80:
			var writes []store.Write
			next := int64(len(states))
			state := make(map[string]string, len(states[next-1])+1)
			for k, v := range states[next-1] {
				state[k] = v
			}
			holds := true
			for _, k := range rnd.Perm(12)[:1+rnd.IntN(3)] {
				w := store.Write{Key: fmt.Sprint("key", k), Expect: store.Any}
				switch rnd.IntN(4) {
				case 0:
					w.Expect = store.Absent
				case 1:
					w.Expect = revisions[w.Key]
				case 2:
					w.Expect = max(0, revisions[w.Key]-int64(rnd.IntN(2)))
				}
				if rnd.IntN(4) > 0 {
					w.Value = NewValue(fmt.Sprintf("%d/%d", step, rnd.IntN(10)))
				}
				present := revisions[w.Key] != 0
				holds = holds && (w.Value != nil || present) && (w.Expect == store.Any || w.Expect == revisions[w.Key])
				writes = append(writes, w)
			}
			commit := s.Commit
			if rnd.IntN(5) == 0 {
				commit = s.CommitRelaxed
			}
			_, err := commit(t.Context(), writes...)
			if holds != (err == nil) || (err != nil && !errors.Is(err, store.ErrConflict)) {
				t.Fatalf("step %d: %+v gave %v; it should hold: %v", step, writes, err, holds)
			}
			if err != nil {
				continue
			}
			for _, w := range writes {
				if w.Value == nil {
					delete(state, w.Key)
					delete(creates, w.Key)
					delete(revisions, w.Key)
					continue
				}
				if revisions[w.Key] == 0 {
					creates[w.Key] = next
				}
				revisions[w.Key] = next
				state[w.Key] = fmt.Sprintf("%s@%d,%d", w.Value.(*Value).Text, creates[w.Key], next)
			}
			states = append(states, state)
		case p < 95:
			revision := compacted + rnd.Int64N(int64(len(states))-compacted)
			if diff := cmp.Diff(states[revision], state(t, s, revision)); diff != "" {
				t.Fatalf("step %d: state at %d of %d:\n%s", step, revision, len(states)-1, diff)
			}
		case p < 97:
			compacted += rnd.Int64N(int64(len(states)) - compacted)
			if err := s.Compact(t.Context(), compacted); err != nil {
				t.Fatal(err)
			}
		default:
			s.Close()
			s = reopen()
			if s.Revision() != int64(len(states)-1) {
				t.Fatalf("step %d: revision %d after a restart, want %d", step, s.Revision(), len(states)-1)
			}
		}
	}
	for revision := compacted; revision < int64(len(states)); revision++ {
		if diff := cmp.Diff(states[revision], state(t, s, revision)); diff != "" {
			t.Fatalf("state at %d:\n%s", revision, diff)
		}
	}
}

func afterClose(t *testing.T, s *store.Store, _ func() *store.Store) {
	put(t, s, "a", "1", store.Absent)
	snap := s.Snapshot()
	c, err := s.Follow(s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 2)
	go func() { _, err := c.Next(context.Background()); waited <- err }()
	go func() { waited <- s.Wait(context.Background(), 100) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-waited; !errors.Is(err, store.ErrClosed) {
			t.Errorf("waiter got %v", err)
		}
	}
	if _, err := s.Commit(context.Background(), store.Write{Key: "b", Value: NewValue("")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
	if v, ok := snap.Get("a"); !ok || Text(t, v) != "1" {
		t.Error("a snapshot does not outlive the store")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// retention checks that history goes away by itself, and not too early.
func retention(t *testing.T, open func(*testing.T) func() store.Backend) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), store.Config{Backend: open(t)(), Decode: Decode, Retention: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range 30 {
			put(t, s, "k", fmt.Sprint(i), store.Any)
			time.Sleep(10 * time.Second)
			synctest.Wait()
		}
		// The newest commit is 10 seconds old, so commit 24 was followed by one within the last minute.
		if got := s.Compacted(); got < 20 || got > 24 {
			t.Errorf("compacted to %d, want 20 to 24", got)
		}
	})
}
