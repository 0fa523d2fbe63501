package apiserver

import (
	"encoding/json"
	"fmt"
	"sync"

	"proa/store"
)

// checkEnv switches the check of immutability on, as Config.CheckImmutable does.
const checkEnv = "PROA_CHECK_IMMUTABLE"

// seals remember how objects looked when they were committed. Whoever changes an object that everybody shares is found
// out when the object is replaced or removed. A nil *seals checks nothing.
type seals struct {
	mu   sync.Mutex
	kept map[*object][]byte
}

func newSeals(check bool) *seals {
	if !check {
		return nil
	}
	return &seals{kept: map[*object][]byte{}}
}

// seal remembers an object as it is now.
func (s *seals) seal(o *object) {
	if s == nil {
		return
	}
	data := sealed(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[o] = data
}

// forget an object that was not committed after all.
func (s *seals) forget(o *object) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, o)
}

// replaced checks the versions that others have taken the place of.
func (s *seals) replaced(by ...*store.Version) {
	if s == nil {
		return
	}
	for _, v := range by {
		if v.Prev == nil || v.Prev.Value == nil {
			continue
		}
		o := v.Prev.Value.(*object)
		if err := s.check(o); err != nil {
			panic(err)
		}
		s.forget(o)
	}
}

// check returns an error when an object has changed since its commit.
func (s *seals) check(o *object) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	before, ok := s.kept[o]
	s.mu.Unlock()
	if !ok {
		return nil // read back from the disk
	}
	if after := sealed(o); string(after) != string(before) {
		return fmt.Errorf("a shared %s was changed: it was committed as %s, and is %s", o.served.Key(), before, after)
	}
	return nil
}

// all checks every object.
func (s *seals) all() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	objects := make([]*object, 0, len(s.kept))
	for o := range s.kept {
		objects = append(objects, o)
	}
	s.mu.Unlock()
	for _, o := range objects {
		if err := s.check(o); err != nil {
			return err
		}
	}
	return nil
}

func sealed(o *object) []byte {
	data, err := json.Marshal(o.Object)
	if err != nil {
		panic(fmt.Sprintf("apiserver: encode %s: %v", o.served.Key(), err))
	}
	return data
}
