package embedded

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions lets the database compact in the background, as many at a time as the database allows itself. Pebble's own
// scheduler looks for work ten times a second, which is most of what an idle server does; this one looks when a compaction
// has ended and when a flush has changed what is allowed, and there are no other occasions.
type compactions struct {
	db pebble.DBForCompaction
	// turn is held while waiting compactions are started.
	turn sync.Mutex
	// grants are the goroutines that start them.
	grants sync.WaitGroup

	mu      sync.Mutex
	running int
	closed  bool
}

var (
	_ pebble.CompactionScheduler   = (*compactions)(nil)
	_ pebble.CompactionGrantHandle = (*compactions)(nil)
)

// Register implements pebble.CompactionScheduler.
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister implements pebble.CompactionScheduler.
func (c *compactions) Unregister() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.grants.Wait()
}

// TrySchedule implements pebble.CompactionScheduler.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.running >= c.db.GetAllowedWithoutPermission() {
		return false, nil
	}
	c.running++
	return true, c
}

// UpdateGetAllowedWithoutPermission implements pebble.CompactionScheduler. The database holds its lock.
func (c *compactions) UpdateGetAllowedWithoutPermission() { c.look() }

// Done implements pebble.CompactionGrantHandle: a compaction has ended.
func (c *compactions) Done() {
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	c.look()
}

// look starts what waits and is allowed, without the locks of the caller.
func (c *compactions) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.grants.Go(c.grant)
	}
}

func (c *compactions) grant() {
	c.turn.Lock()
	defer c.turn.Unlock()
	for c.free() {
		// A compaction that is refused permission waits from before the database gives its lock away, so none is overlooked.
		if waiting, _ := c.db.GetWaitingCompaction(); !waiting || !c.db.Schedule(c) {
			return
		}
		c.mu.Lock()
		c.running++
		c.mu.Unlock()
	}
}

func (c *compactions) free() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && c.running < c.db.GetAllowedWithoutPermission()
}

// Started implements pebble.CompactionGrantHandle.
func (c *compactions) Started() {}

// MeasureCPU implements pebble.CompactionGrantHandle.
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements pebble.CompactionGrantHandle.
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}
