package apiserver

// answer is a buffer for the answer that is one object, used again and again.
type answer struct{ buf []byte }

// largestAnswer is the size up to which a buffer is kept.
const largestAnswer = 64 << 10

func (s *Server) newAnswer() *answer {
	if a, _ := s.answers.Get().(*answer); a != nil {
		return a
	}
	return new(answer)
}

// done takes a buffer back once its bytes have been sent.
func (s *Server) done(a *answer) {
	if cap(a.buf) <= largestAnswer {
		s.answers.Put(a)
	}
}

// wholeOnce encodes an object in JSON or protobuf. Forms that are kept are used, but none is made to be kept: who has just
// written or read an object by its name seldom asks for it again, and a kept form is as large as the object.
func (a *answer) wholeOnce(f format, v *served, o *object) error {
	a.buf = a.buf[:0]
	if f.encoding == asProtobuf {
		if kept := o.wire.Load(); kept != nil {
			a.buf = append(append(appendEnvelope(a.buf, v.gvk, len(*kept)), *kept...), envelopeTail...)
			return nil
		}
		m, ok := o.Object.(sizedMarshaler)
		if !ok {
			return errNoProtobuf
		}
		buf, err := appendMarshaled(a.buf, v.gvk, m)
		if err != nil {
			return err
		}
		a.buf = buf
		return nil
	}
	if kept := o.json.Load(); kept != nil {
		a.buf = append(withTypeJSON(a.buf, v.prefixJSON, *kept), '\n')
		return nil
	}
	// The comma takes the place of the brace that opens the object, unless there is nothing behind it.
	a.buf = append(a.buf, v.prefixJSON...)
	start := len(a.buf)
	buf, err := v.json.append(a.buf, o.Object)
	if err != nil {
		return err
	}
	if buf[start] = ','; buf[start+1] == '}' {
		buf = append(buf[:start], '}')
	}
	a.buf = append(buf, '\n')
	return nil
}

// sizedMarshaler is what the kinds with a protobuf form are.
type sizedMarshaler interface {
	Size() int
	MarshalToSizedBuffer(data []byte) (int, error)
}
