package apiserver

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"proa/api"
	"proa/store"
)

// object is what the store holds: an API object in its storage version and, once someone has asked for them, its encoded
// forms. The API object never changes after the commit.
type object struct {
	served *served
	api.Object
	encodings  *encodings
	json, wire atomic.Pointer[[]byte]
}

func (s *Server) newValue(v *served, obj api.Object) *object {
	return &object{served: v.storage, Object: obj, encodings: s.encodings}
}

// Bytes is the durable form: the protobuf envelope, or JSON for kinds that have no protobuf form.
func (o *object) Bytes() []byte {
	data, err := encodeDurable(o.served, o.Object)
	if err != nil {
		// Every kind of the table encodes; anything else is a broken table.
		panic(fmt.Sprintf("apiserver: encode %s: %v", o.served.Key(), err))
	}
	return data
}

// Committed gives the object its resource version.
func (o *object) Committed(_, revision int64) {
	o.SetResourceVersion(strconv.FormatInt(revision, 10))
	if o.encodings != nil {
		o.encodings.seals.seal(o)
	}
}

// bodyJSON is the object in JSON without its kind and version: `{"metadata":...}`.
func (o *object) bodyJSON() ([]byte, error) {
	if data := o.json.Load(); data != nil {
		return *data, nil
	}
	data, err := o.served.json.marshal(o.Object)
	if err != nil {
		return nil, err
	}
	if o.json.CompareAndSwap(nil, &data) {
		o.encodings.add(o, false, len(data))
	}
	return data, nil
}

// bodyWire is the object in protobuf, without the envelope.
func (o *object) bodyWire() ([]byte, error) {
	if data := o.wire.Load(); data != nil {
		return *data, nil
	}
	m, ok := o.Object.(marshaler)
	if !ok {
		return nil, errNoProtobuf
	}
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	if o.wire.CompareAndSwap(nil, &data) {
		o.encodings.add(o, true, len(data))
	}
	return data, nil
}

// encodingsLimit bounds the memory of all encoded forms together.
const encodingsLimit = 48 << 20

// encodings forgets some encoded forms when there are too many: any, because a list that is asked for again and again and
// is larger than the limit would find nothing were it always the oldest.
type encodings struct {
	limit int
	// seals are nil unless objects are checked for changes.
	seals *seals

	mu   sync.Mutex
	size int
	kept []encoding
}

type encoding struct {
	object weak.Pointer[object]
	wire   bool
	size   int
}

func newEncodings(limit int) *encodings { return &encodings{limit: limit} }

func (e *encodings) add(o *object, wire bool, size int) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, encoding{weak.Make(o), wire, size})
	e.size += size
	for e.size > e.limit {
		i, last := rand.IntN(len(e.kept)), len(e.kept)-1
		old := e.kept[i]
		e.kept[i], e.kept[last] = e.kept[last], encoding{}
		e.kept = e.kept[:last]
		e.size -= old.size
		switch o := old.object.Value(); {
		case o == nil:
		case old.wire:
			o.wire.Store(nil)
		default:
			o.json.Store(nil)
		}
	}
}

// Decode reads back what a server has stored of the kinds in table.
func Decode(table *api.Table) store.Decode {
	source := newTableSource(table)
	// The encodings of values that were read back are bounded together, as one server's are.
	shared, sets := newEncodings(encodingsLimit), newFieldSets()
	return func(key string, data []byte) (store.Value, error) {
		v := source.byPrefix[kindOf(key)]
		if v == nil {
			return nil, fmt.Errorf("no kind for key %s", key)
		}
		obj := v.New()
		if err := decodeDurable(data, obj); err != nil {
			return nil, err
		}
		sets.share(obj)
		return &object{served: v, Object: obj, encodings: shared}, nil
	}
}

// kindOf is the part of a key that all objects of a kind share.
func kindOf(key string) string {
	group := strings.IndexByte(key, '/')
	if group < 0 {
		return ""
	}
	plural := strings.IndexByte(key[group+1:], '/')
	if plural < 0 {
		return ""
	}
	return key[:group+1+plural+1]
}

// deletions holds the last states of deleted objects with the revision of their deletion, as watchers see them, so that
// all watchers share one.
type deletions struct {
	mu    sync.Mutex
	ring  [256]*store.Version
	next  int
	known map[*store.Version]*object
}

func newDeletions() *deletions { return &deletions{known: map[*store.Version]*object{}} }

func (d *deletions) of(v *store.Version) *object {
	return d.at(v, v.Prev)
}

// at is the state that last, which v replaced, had, with the revision of v.
func (d *deletions) at(v, last *store.Version) *object {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.known[v]; o != nil {
		return o
	}
	old := last.Value.(*object)
	obj := old.DeepCopyObject().(api.Object)
	obj.SetResourceVersion(strconv.FormatInt(v.Revision, 10))
	o := &object{served: old.served, Object: obj, encodings: old.encodings}
	delete(d.known, d.ring[d.next])
	d.ring[d.next], d.known[v] = v, o
	d.next = (d.next + 1) % len(d.ring)
	return o
}

// withTypeJSON appends body, a JSON object, with kind and version in front.
func withTypeJSON(dst []byte, prefix string, body []byte) []byte {
	dst = append(dst, prefix...)
	body = bytes.TrimSpace(body)
	if len(body) > 2 {
		dst = append(dst, ',')
	}
	return append(dst, body[1:]...)
}
