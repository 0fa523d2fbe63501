package apiserver

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
)

// fieldSets keeps one copy of managed fields that many objects have alike: pods of one shape differ in values, not in which
// fields they have, and the set is as large as the rest of a small object.
type fieldSets struct {
	seed maphash.Seed

	mu    sync.Mutex
	known map[uint64]weak.Pointer[metav1.FieldsV1]
}

// knownFieldSets bounds the table, which is forgotten when it is full: what is in use comes back.
const knownFieldSets = 4096

func newFieldSets() *fieldSets {
	return &fieldSets{seed: maphash.MakeSeed(), known: map[uint64]weak.Pointer[metav1.FieldsV1]{}}
}

// share gives an object, which must still be private but for its managed fields, the common copies of those.
func (f *fieldSets) share(obj api.Object) {
	given := obj.GetManagedFields()
	entries := given
	for i := range entries {
		if own := given[i].FieldsV1; own != nil {
			if common := f.of(own.GetRawBytes(), own); common != own {
				if &entries[0] == &given[0] {
					entries = slices.Clone(given) // it may be that of the object before
				}
				entries[i].FieldsV1 = common
			}
		}
	}
	if len(entries) > 0 && &entries[0] != &given[0] {
		obj.SetManagedFields(entries)
	}
}

// of returns the common copy of a set: own when there is none yet, or a new one when own is nil.
func (f *fieldSets) of(set []byte, own *metav1.FieldsV1) *metav1.FieldsV1 {
	hash := maphash.Bytes(f.seed, set)
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.known[hash].Value(); p != nil && bytes.Equal(p.GetRawBytes(), set) {
		return p
	}
	if own == nil {
		own = &metav1.FieldsV1{}
		own.SetRawBytes(set)
	}
	if len(f.known) >= knownFieldSets {
		clear(f.known)
	}
	f.known[hash] = weak.Make(own)
	return own
}
