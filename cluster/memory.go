package cluster

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"proa/store"
)

const (
	// manyWrites leave enough garbage to look whether memory is worth returning.
	manyWrites = 2000
	// calm is how long at most manyWrites/2 writes make a burst over; heartbeats of a thousand nodes are fewer.
	calm = 5 * time.Second
	// worthReturning is the memory, unused or garbage, below which the work of returning it is not.
	worthReturning = 16 << 20
	// smallHeap may double between two collections. Larger ones grow less, down to by half: the share of time that goes into
	// collecting does not depend on the size, while the memory that waits for it does.
	smallHeap = 96 << 20
)

// returnMemory gives memory back to the machine when the start, and later any burst of writes, is over: Go's collector
// otherwise keeps what the burst needed until the heap has grown as much again, which at rest is never. Meanwhile it paces
// the collector. It waits for writes and does nothing while there are none. What the burst needed of the program file is
// given back as well.
func returnMemory(ctx context.Context, st *store.Store, log *slog.Logger) error {
	for {
		for revision := int64(-1); ; {
			if now := st.Revision(); revision >= 0 && now-revision <= manyWrites/2 {
				break
			}
			revision = st.Revision()
			pace()
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(calm):
			}
		}
		if unused() > worthReturning {
			debug.FreeOSMemory()
		}
		if err := forgetProgram(); err != nil {
			log.Warn("pages of the program stay in memory", "err", err)
		}
		if err := st.Wait(ctx, st.Revision()+manyWrites); err != nil {
			return nil // the server stops
		}
	}
}

// pace tells the collector how much the heap may grow until the next collection, unless the environment does.
func pace() {
	if os.Getenv("GOGC") != "" {
		return
	}
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(samples)
	live, now := samples[0].Value.Uint64(), int(samples[1].Value.Uint64())
	if percent := pacedAt(live); percent < now-5 || percent > now+5 {
		debug.SetGCPercent(percent)
	}
}

// pacedAt is how many percent a heap with so many live bytes may grow.
func pacedAt(live uint64) int {
	return int(100 * smallHeap / min(max(live, smallHeap), 2*smallHeap))
}

// unused is the memory of the heap that is free but not returned, or garbage as far as the collector knows.
func unused() int64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	return value(0) + value(1) + value(2) - value(3)
}
