package client

import (
	"iter"
	"sync"

	"proa/api"
)

// Index groups the objects of one kind by keys that a function derives from them ("pods by node", "pods by owner").
// Feed it the events of a subscription with Apply; it only keeps pointers. The zero value is not usable; see NewIndex.
// It is safe for concurrent use.
type Index[T api.Object] struct {
	keys func(T) []string

	mu    sync.RWMutex
	byKey map[string]map[objectKey]T
}

type objectKey struct{ namespace, name string }

// NewIndex returns an empty index.
func NewIndex[T api.Object](keys func(T) []string) *Index[T] {
	return &Index[T]{keys: keys, byKey: map[string]map[objectKey]T{}}
}

// Apply takes one event into account; events of other kinds are ignored.
func (x *Index[T]) Apply(e Event) {
	old, hadOld := e.Old.(T)
	obj, hasNew := e.New.(T)
	if !hadOld && !hasNew {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if hadOld {
		id := objectKey{old.GetNamespace(), old.GetName()}
		for _, k := range x.keys(old) {
			delete(x.byKey[k], id)
			if len(x.byKey[k]) == 0 {
				delete(x.byKey, k)
			}
		}
	}
	if hasNew {
		id := objectKey{obj.GetNamespace(), obj.GetName()}
		for _, k := range x.keys(obj) {
			if x.byKey[k] == nil {
				x.byKey[k] = map[objectKey]T{}
			}
			x.byKey[k][id] = obj
		}
	}
}

// Lookup yields the objects under key, in no order. The index may not be changed from inside the loop.
func (x *Index[T]) Lookup(key string) iter.Seq[T] {
	return func(yield func(T) bool) {
		x.mu.RLock()
		defer x.mu.RUnlock()
		for _, obj := range x.byKey[key] {
			if !yield(obj) {
				return
			}
		}
	}
}

// Len is the number of objects under key.
func (x *Index[T]) Len(key string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byKey[key])
}
