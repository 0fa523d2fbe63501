package apiserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/api"
)

// magic opens every protobuf envelope.
const magic = "k8s\x00"

type marshaler interface {
	Marshal() ([]byte, error)
}

type unmarshaler interface {
	Unmarshal(data []byte) error
}

var errNoProtobuf = errors.New("kind has no protobuf form")

// appendEnvelope appends the head of an envelope for an object of size bytes in protobuf; the object and
// envelopeTail follow.
func appendEnvelope(dst []byte, gvk schema.GroupVersionKind, size int) []byte {
	version := gvk.GroupVersion().String()
	dst = append(dst, magic...)
	meta := fieldText(nil, 1, version)
	meta = fieldText(meta, 2, gvk.Kind)
	dst = fieldText(dst, 1, string(meta))
	dst = append(dst, 2<<3|2)
	return binary.AppendUvarint(dst, uint64(size))
}

// envelopeTail are the empty content encoding and content type.
const envelopeTail = "\x1a\x00\x22\x00"

// fieldText appends a length-delimited field.
func fieldText(dst []byte, number byte, value string) []byte {
	dst = append(dst, number<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

func envelope(gvk schema.GroupVersionKind, body []byte) []byte {
	dst := appendEnvelope(make([]byte, 0, len(body)+64+len(gvk.Kind)+len(gvk.Group)), gvk, len(body))
	dst = append(dst, body...)
	return append(dst, envelopeTail...)
}

// marshalEnvelope encodes an object in an envelope.
func marshalEnvelope(gvk schema.GroupVersionKind, m marshaler) ([]byte, error) {
	s, ok := m.(sizedMarshaler)
	if !ok {
		body, err := m.Marshal()
		if err != nil {
			return nil, err
		}
		return envelope(gvk, body), nil
	}
	return appendMarshaled(nil, gvk, s)
}

// appendMarshaled appends an object in an envelope.
func appendMarshaled(dst []byte, gvk schema.GroupVersionKind, s sizedMarshaler) ([]byte, error) {
	size := s.Size()
	dst = slices.Grow(dst, size+64+len(gvk.Kind)+len(gvk.Group)) // mostly all that is needed
	dst = slices.Grow(appendEnvelope(dst, gvk, size), size+len(envelopeTail))
	if n, err := s.MarshalToSizedBuffer(dst[len(dst) : len(dst)+size]); err != nil || n != size {
		return nil, errors.Join(err, fmt.Errorf("%d of %d bytes of %s encoded", n, size, gvk.Kind))
	}
	return append(dst[:len(dst)+size], envelopeTail...), nil
}

// encodeWire encodes any object that has a protobuf form in an envelope.
func encodeWire(gvk schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	m, ok := obj.(marshaler)
	if !ok {
		return nil, errNoProtobuf
	}
	return marshalEnvelope(gvk, m)
}

// openEnvelope returns the content of an envelope and the kind written on it.
func openEnvelope(data []byte) (body []byte, gvk schema.GroupVersionKind, err error) {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, gvk, errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(data[len(magic):]); err != nil {
		return nil, gvk, err
	}
	return u.Raw, schema.FromAPIVersionAndKind(u.APIVersion, u.Kind), nil
}

func encodeDurable(v *served, obj api.Object) ([]byte, error) {
	if m, ok := obj.(marshaler); ok {
		return marshalEnvelope(v.GroupVersionKind, m)
	}
	return json.Marshal(obj)
}

func decodeDurable(data []byte, into api.Object) error {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return json.Unmarshal(data, into)
	}
	body, _, err := openEnvelope(data)
	if err != nil {
		return err
	}
	u, ok := into.(unmarshaler)
	if !ok {
		return fmt.Errorf("%T: %w", into, errNoProtobuf)
	}
	return u.Unmarshal(body)
}

// fieldBytes is fieldText for bytes.
func fieldBytes(dst []byte, number byte, value []byte) []byte {
	dst = append(dst, number<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(value)))
	return append(dst, value...)
}

func uvarintLen(n int) int {
	size := 1
	for n >= 0x80 {
		n >>= 7
		size++
	}
	return size
}
