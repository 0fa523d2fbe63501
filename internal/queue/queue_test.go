package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// run starts the queue with handle and returns a function that stops it and waits.
func run(t *testing.T, q *Queue[string], workers int, handle Handle[string]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		q.Run(ctx, slog.New(slog.DiscardHandler), workers, handle)
		close(done)
	}()
	return func() { cancel(); <-done }
}

func TestOneWorkerPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		var mu sync.Mutex
		active, calls := 0, 0
		stop := run(t, q, 4, func(ctx context.Context, key string) (time.Duration, error) {
			mu.Lock()
			active++
			calls++
			if active > 1 {
				t.Error("two workers hold one key")
			}
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			active--
			mu.Unlock()
			return 0, nil
		})
		q.Add("a")
		synctest.Wait()
		q.Add("a")
		q.Add("a")
		time.Sleep(5 * time.Second)
		stop()
		if calls != 2 {
			t.Errorf("handled %d times, want 2: once, and once for the adds meanwhile", calls)
		}
	})
}

func TestBackoffAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		var at []time.Duration
		start := time.Now()
		stop := run(t, q, 1, func(ctx context.Context, key string) (time.Duration, error) {
			at = append(at, time.Since(start))
			switch len(at) {
			case 1, 2, 3:
				return 0, errors.New("not yet")
			case 4:
				return time.Hour, nil
			}
			return 0, nil
		})
		q.Add("a")
		time.Sleep(2 * time.Hour)
		stop()
		if len(at) != 5 {
			t.Fatalf("handled at %v, want 5 times", at)
		}
		for i, base := range []time.Duration{BaseDelay, 2 * BaseDelay, 4 * BaseDelay, time.Hour} {
			if d := at[i+1] - at[i]; d < base || d > base+base/10+time.Millisecond {
				t.Errorf("step %d came after %v, want %v and up to a tenth more", i+1, d, base)
			}
		}
	})
}

func TestAddAfterKeepsEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		var at []time.Duration
		start := time.Now()
		stop := run(t, q, 1, func(ctx context.Context, key string) (time.Duration, error) {
			at = append(at, time.Since(start))
			return 0, nil
		})
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 3*time.Second)
		q.AddAfter("a", 20*time.Second)
		time.Sleep(time.Minute)
		stop()
		if len(at) != 1 || at[0] != 3*time.Second {
			t.Errorf("handled at %v, want once after 3s", at)
		}
	})
}
