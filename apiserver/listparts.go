package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// listParts is a list put together from the encoded forms of its objects, which are shared and therefore not copied.
type listParts struct {
	head, tail []byte
	bodies     [][]byte
	// between returns what precedes a body, appended to dst.
	between func(dst []byte, i int) []byte
	size    int
}

func (v *served) listKind() schema.GroupVersionKind {
	kind := v.gvk
	kind.Kind += "List"
	return kind
}

func (x *exchange) listParts(f format, p *page) (*listParts, error) {
	if f.encoding == asProtobuf {
		return wireList(x.v.listKind(), p)
	}
	return jsonList(x.v.listKind(), p)
}

func jsonList(kind schema.GroupVersionKind, p *page) (*listParts, error) {
	meta, err := json.Marshal(p.meta())
	if err != nil {
		return nil, err
	}
	l := &listParts{bodies: make([][]byte, len(p.objects)), tail: []byte("]}\n")}
	l.head = append(l.head, `{"kind":"`+kind.Kind+`","apiVersion":"`+kind.GroupVersion().String()+`","metadata":`...)
	l.head = append(l.head, meta...)
	l.head = append(l.head, `,"items":[`...)
	l.between = func(dst []byte, i int) []byte {
		if i == 0 {
			return dst
		}
		return append(dst, ',')
	}
	l.size = len(l.head) + len(l.tail) + max(len(p.objects)-1, 0)
	for i, o := range p.objects {
		if l.bodies[i], err = o.bodyJSON(); err != nil {
			return nil, err
		}
		l.size += len(l.bodies[i])
	}
	return l, nil
}

// wireList does the same in protobuf: in every list kind, field 1 is the metadata and field 2 the items.
func wireList(kind schema.GroupVersionKind, p *page) (*listParts, error) {
	listMeta := p.meta()
	meta, err := listMeta.Marshal()
	if err != nil {
		return nil, err
	}
	l := &listParts{bodies: make([][]byte, len(p.objects)), tail: []byte(envelopeTail)}
	inner := 1 + uvarintLen(len(meta)) + len(meta)
	for i, o := range p.objects {
		if l.bodies[i], err = o.bodyWire(); err != nil {
			return nil, err
		}
		inner += 1 + uvarintLen(len(l.bodies[i])) + len(l.bodies[i])
	}
	l.head = appendEnvelope(nil, kind, inner)
	l.size = len(l.head) + inner + len(l.tail)
	l.head = fieldBytes(l.head, 1, meta)
	l.between = func(dst []byte, i int) []byte {
		return binary.AppendUvarint(append(dst, 2<<3|2), uint64(len(l.bodies[i])))
	}
	return l, nil
}

// all yields the list in pieces that are valid until the next.
func (l *listParts) all(yield func(part []byte) bool) {
	if !yield(l.head) {
		return
	}
	var small [16]byte
	for i, body := range l.bodies {
		if !yield(l.between(small[:0], i)) || !yield(body) {
			return
		}
	}
	yield(l.tail)
}

// chunk is how much of a list is written at once: enough that writing costs little, little enough that a list of thousands
// of objects is never in memory twice.
const chunk = 256 << 10

func (l *listParts) send(w http.ResponseWriter, r *http.Request, f format) {
	w.Header().Set("Content-Type", f.contentType())
	w.Header().Set("Content-Length", strconv.Itoa(l.size))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	buf := make([]byte, 0, min(l.size, chunk))
	for part := range l.all {
		if len(buf)+len(part) > cap(buf) {
			if _, err := w.Write(buf); err != nil {
				return // a client that has gone needs no answer
			}
			buf = buf[:0]
		}
		if len(part) > cap(buf) {
			if _, err := w.Write(part); err != nil {
				return
			}
			continue
		}
		buf = append(buf, part...)
	}
	_, _ = w.Write(buf)
}
