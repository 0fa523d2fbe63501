package embedded

import (
	"context"
	"errors"
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
	var revision int64
	for range 3 {
		for range 100 {
			revision++
			r := store.Record{Key: "k", Create: 1, Revision: revision, Prev: revision - 1, Data: []byte("x")}
			if err := b.Append([]store.Record{r}, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(b.Compact(t.Context(), revision-1), b.db.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.db.Compact(ctx, recordsFrom(0), recordsEnd(), true); err != nil {
		t.Fatal(err)
	}
	if m := b.db.Metrics(); m.Compact.Count == 0 || m.Compact.NumInProgress != 0 {
		t.Errorf("%d compactions, %d of them still run", m.Compact.Count, m.Compact.NumInProgress)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
