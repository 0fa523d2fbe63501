package apiserver

import (
	"encoding/json"
	"sync"
)

// answer is a buffer for the answer that is one object, used again and again.
type answer struct {
	buf     []byte
	encoder *json.Encoder
	// inside says that the brace which opens the object has been passed over: its kind and version come first.
	inside bool
}

var answers = sync.Pool{New: func() any {
	a := new(answer)
	a.encoder = json.NewEncoder(a)
	return a
}}

// largestAnswer is the size up to which a buffer is kept.
const largestAnswer = 64 << 10

func (a *answer) free() {
	if cap(a.buf) <= largestAnswer {
		answers.Put(a)
	}
}

// Write takes the JSON form of an object from the encoder.
func (a *answer) Write(data []byte) (int, error) {
	rest := data
	if !a.inside {
		a.inside = true
		if rest = data[1:]; len(rest) > 0 && rest[0] != '}' {
			a.buf = append(a.buf, ',')
		}
	}
	a.buf = append(a.buf, rest...)
	return len(data), nil
}

// wholeOnce encodes an object in JSON or protobuf. Forms that are kept are used, but none is made to be kept: who has just
// written or read an object by its name seldom asks for it again, and a kept form is as large as the object.
func (a *answer) wholeOnce(f format, v *served, o *object) error {
	a.buf, a.inside = a.buf[:0], false
	if f.encoding == asProtobuf {
		if kept := o.wire.Load(); kept != nil {
			a.buf = append(append(appendEnvelope(a.buf, v.gvk, len(*kept)), *kept...), envelopeTail...)
			return nil
		}
		m, ok := o.Object.(sizedMarshaler)
		if !ok {
			return errNoProtobuf
		}
		size := m.Size()
		a.buf = appendEnvelope(a.buf, v.gvk, size)
		start := len(a.buf)
		a.buf = append(a.buf, make([]byte, size)...)
		if _, err := m.MarshalToSizedBuffer(a.buf[start:]); err != nil {
			return err
		}
		a.buf = append(a.buf, envelopeTail...)
		return nil
	}
	if kept := o.json.Load(); kept != nil {
		a.buf = append(withTypeJSON(a.buf, v.prefixJSON, *kept), '\n')
		return nil
	}
	a.buf = append(a.buf, v.prefixJSON...)
	return a.encoder.Encode(o.Object)
}

// sizedMarshaler is what the kinds with a protobuf form are.
type sizedMarshaler interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}
