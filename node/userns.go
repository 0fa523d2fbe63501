package node

import (
	"errors"
	"sync"
)

// User namespaces of pods: each has a range of 65536 IDs of the node, none shared and none below the first.
const (
	usernsLength = 65536
	usernsCount  = 1024
)

type usernsPool struct {
	mu   sync.Mutex
	used map[uint32]bool
}

func (u *usernsPool) take() (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := uint32(1); i <= usernsCount; i++ {
		if first := i * usernsLength; !u.used[first] {
			u.hold(first)
			return first, nil
		}
	}
	return 0, errors.New("could not find an empty slot to allocate a user namespace")
}

func (u *usernsPool) hold(first uint32) {
	if u.used == nil {
		u.used = map[uint32]bool{}
	}
	u.used[first] = true
}

// keep notes a range that a sandbox found running has.
func (u *usernsPool) keep(first uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hold(first)
}

func (u *usernsPool) give(first uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, first)
}
