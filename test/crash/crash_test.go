// Package crash kills a writing process at random moments, again and again, and checks that the store keeps its word.
// PROA_KILLS sets the number of kills.
package crash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"proa/store"
	"proa/store/embedded"
	"proa/store/storetest"
)

// childEnv makes the test binary the process that is killed, and names the directory it writes to.
const childEnv = "PROA_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := write(dir, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func open(dir string) (*store.Store, error) {
	b, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return nil, err
	}
	return store.Open(context.Background(), store.Config{Backend: b, Decode: storetest.Decode, Retention: 200 * time.Millisecond})
}

const writers = 8

// write commits without end: every commit moves the left and the right key of its writer to the same new number. Each
// acknowledgement is one line, written at once: d or r for durable or relaxed, the writer, the number, the revision.
func write(dir string, acks io.Writer) error {
	s, err := open(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(acks, "open %d\n", s.Revision())
	var mu sync.Mutex
	failed := make(chan error, writers)
	for w := range writers {
		go func() {
			number := 0
			if v, ok := s.Snapshot().Get(fmt.Sprint("left", w)); ok {
				number, _ = strconv.Atoi(strings.TrimRight(string(v.Value.Bytes()), "."))
			}
			for {
				number++
				// Sizes vary, so that records begin and end anywhere in a block of the log.
				text := strconv.Itoa(number) + strings.Repeat(".", rand.IntN(3000))
				commit, kind := s.Commit, "d"
				if rand.IntN(5) == 0 {
					commit, kind = s.CommitRelaxed, "r"
				}
				versions, err := commit(context.Background(),
					store.Write{Key: fmt.Sprint("left", w), Value: storetest.NewValue(text), Expect: store.Any},
					store.Write{Key: fmt.Sprint("right", w), Value: storetest.NewValue(text), Expect: store.Any})
				if err != nil {
					failed <- err
					return
				}
				mu.Lock()
				fmt.Fprintf(acks, "%s %d %d %d\n", kind, w, number, versions[0].Revision)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

func TestKill(t *testing.T) {
	kills := 10
	if text := os.Getenv("PROA_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("PROA_KILLS: %v", err)
		}
		kills = n
	}
	dir := filepath.Join(t.TempDir(), "store")
	known := acknowledged{opened: make(map[int64]bool)}
	for i := range kills {
		if err := run(dir, time.Duration(30+rand.IntN(300))*time.Millisecond, &known); err != nil {
			t.Fatalf("kill %d: %v", i, err)
		}
		if err := verify(t, dir, &known); err != nil {
			t.Fatalf("after kill %d: %v", i, err)
		}
	}
	if known.commits == 0 {
		t.Error("the killed processes acknowledged nothing")
	}
	t.Logf("%d kills, %d commits acknowledged, revision %d", kills, known.commits, known.revision)
}

// acknowledged is what the writers have been promised: the newest durable number of each, the relaxed ones after it, and
// that no revision is given out again.
type acknowledged struct {
	durable  [writers]int
	relaxed  [writers][]relaxed
	revision int64
	commits  int
	// opened holds the revisions that the store went on from.
	opened map[int64]bool
}

type relaxed struct {
	number   int
	revision int64
}

// number is what the writer's keys are at least at, when the newest commit that was not lost is at revision: a relaxed
// commit may be lost, but not if a later one is there.
func (a *acknowledged) number(writer int, revision int64) int {
	n := a.durable[writer]
	for _, r := range a.relaxed[writer] {
		if r.revision <= revision {
			n = max(n, r.number)
		}
	}
	return n
}

// run starts the writing process, kills it after the delay and notes what it acknowledged.
func run(dir string, delay time.Duration, known *acknowledged) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childEnv+"="+dir)
	var problems strings.Builder
	child.Stderr = &problems
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	defer time.AfterFunc(delay, func() { child.Process.Kill() }).Stop()
	var bad error
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // the last line may be cut short; it promises nothing
		}
		if bad = errors.Join(bad, known.note(line)); bad != nil {
			child.Process.Kill()
		}
	}
	child.Wait()
	if problems.Len() > 0 {
		bad = errors.Join(bad, errors.New(problems.String()))
	}
	return bad
}

func (a *acknowledged) note(line string) error {
	var kind string
	var writer, number int
	var revision int64
	if n, _ := fmt.Sscanf(line, "open %d", &revision); n == 1 {
		if revision < a.revision {
			return fmt.Errorf("opened at revision %d, acknowledged was %d", revision, a.revision)
		}
		a.opened[revision] = true
		return nil
	}
	if _, err := fmt.Sscanf(line, "%s %d %d %d", &kind, &writer, &number, &revision); err != nil {
		return fmt.Errorf("line %q: %w", line, err)
	}
	if number <= a.durable[writer] {
		return fmt.Errorf("writer %d went from %d to %d", writer, a.durable[writer], number)
	}
	if kind == "d" {
		a.durable[writer], a.relaxed[writer] = number, nil
	} else {
		a.relaxed[writer] = append(a.relaxed[writer], relaxed{number, revision})
	}
	a.revision = max(a.revision, revision)
	a.commits++
	return nil
}

func verify(t *testing.T, dir string, known *acknowledged) error {
	s, err := open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if s.Revision() < known.revision {
		return fmt.Errorf("revision %d, acknowledged was %d", s.Revision(), known.revision)
	}
	snap := s.Snapshot()
	var newest int64
	for v := range snap.Range("", "") {
		newest = max(newest, v.Revision)
	}
	for w := range writers {
		number := known.number(w, newest)
		known.durable[w], known.relaxed[w] = number, nil
		left, ok := snap.Get(fmt.Sprint("left", w))
		if !ok {
			if number > 0 {
				return fmt.Errorf("writer %d: keys are gone, acknowledged was %d", w, number)
			}
			continue
		}
		right, ok := snap.Get(fmt.Sprint("right", w))
		switch l := storetest.Text(t, left); {
		case !ok || left.Revision != right.Revision || l != storetest.Text(t, right):
			return fmt.Errorf("writer %d: half of the commit at revision %d is there", w, left.Revision)
		default:
			if got, _ := strconv.Atoi(strings.TrimRight(l, ".")); got < number {
				return fmt.Errorf("writer %d: at %d, acknowledged was %d", w, got, number)
			}
		}
	}
	// History has both keys of every revision since the compaction; between two lives of the store revisions are missing.
	cursor, err := s.Follow(s.Compacted())
	if err != nil {
		return err
	}
	seen := make(map[int64]int)
	last := s.Compacted()
	for cursor.Revision() < s.Revision() {
		versions, err := cursor.Next(context.Background())
		if err != nil {
			return err
		}
		for _, v := range versions {
			if v.Revision < last {
				return fmt.Errorf("history goes from revision %d to %d", last, v.Revision)
			}
			if v.Revision > last+1 && !known.opened[v.Revision-1] {
				return fmt.Errorf("history goes from revision %d to %d", last, v.Revision)
			}
			last = v.Revision
			seen[v.Revision]++
		}
	}
	for revision, n := range seen {
		if n != 2 {
			return fmt.Errorf("history has %d versions at revision %d, want 2", n, revision)
		}
	}
	return nil
}
