package embedded

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"proa/store"
)

// TestCompactions checks that the database's files are merged as they become many, and that nothing of that outlives Close.
func TestCompactions(t *testing.T) {
	b, err := Open("/store", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.NewChaCha8([32]byte{})
	value := make([]byte, 64<<10)
	flush := func(revision int64) int64 {
		for range 70 { // more than a memtable holds
			revision++
			rnd.Read(value)
			r := store.Record{Key: fmt.Sprint("k", revision%100), Create: revision, Revision: revision, Data: value}
			if err := b.Append([]store.Record{r}, false); err != nil {
				t.Fatal(err)
			}
		}
		return revision
	}
	var revision int64
	for deadline := time.Now().Add(time.Minute); b.db.Metrics().Compact.Count == 0; {
		if time.Now().After(deadline) {
			t.Fatalf("no compaction after %d records:\n%s", revision, b.db.Metrics())
		}
		revision = flush(revision)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
