package cluster

import "testing"

func TestPacedAt(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 96 << 20: 100, 128 << 20: 75, 192 << 20: 50, 1 << 40: 50} {
		if got := pacedAt(live); got != want {
			t.Errorf("a heap of %d bytes may grow by %d %%, want %d %%", live, got, want)
		}
	}
}
