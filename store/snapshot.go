package store

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"
)

// tree holds the newest version of every key. Copies share nodes until one of them is written to.
type tree = btree.Map[string, *Version]

// newTree has small nodes: a write copies those on its way, once for every snapshot.
func newTree() *tree { return btree.NewMap[string, *Version](12) }

type snapshot struct {
	revision int64
	tree     *tree
}

func (s *snapshot) Revision() int64 { return s.revision }

func (s *snapshot) Get(key string) (*Version, bool) { return s.tree.Get(key) }

func (s *snapshot) Range(prefix, start string) iter.Seq[*Version] {
	return func(yield func(*Version) bool) {
		s.tree.Ascend(max(prefix, start), func(key string, v *Version) bool {
			return strings.HasPrefix(key, prefix) && yield(v)
		})
	}
}

func (s *snapshot) Count(prefix, start string) int {
	end, bounded := prefixEnd(prefix)
	last := s.tree.Len()
	if bounded {
		last = s.rank(end)
	}
	return max(0, last-s.rank(max(prefix, start)))
}

// rank is the number of keys less than key. The tree finds an item by its index in logarithmic time, but not the
// reverse, so this searches over the indexes.
func (s *snapshot) rank(key string) int {
	low, high := 0, s.tree.Len()
	for low < high {
		middle := int(uint(low+high) / 2)
		if k, _, _ := s.tree.GetAt(middle); k < key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

// prefixEnd is the least string greater than everything that begins with prefix, if there is one.
func prefixEnd(prefix string) (string, bool) {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1]), true
		}
	}
	return "", false
}
