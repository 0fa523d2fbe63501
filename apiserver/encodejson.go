package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// jsonPlan writes values of one Go type exactly as encoding/json does, in a fraction of the time: it knows the fields
// beforehand, appends to one buffer, and does not read again what types with a form of their own have written. What is
// seldom it leaves to encoding/json.
type jsonPlan struct {
	kind    jsonKind
	fields  []jsonField
	element *jsonPlan
}

type jsonKind int

const (
	jsonGeneral jsonKind = iota // left to encoding/json
	jsonString
	jsonBool
	jsonInt
	jsonUint
	jsonBytes
	jsonStruct
	jsonSlice
	jsonMap
	jsonPointer
	jsonTime
	jsonQuantity
	jsonFields
)

type jsonField struct {
	index []int
	// open is the name as it is written: `"name":`.
	open      string
	omitEmpty bool
	omitZero  func(reflect.Value) bool
	plan      *jsonPlan
}

// jsonPlans are made when they are first needed. The types are those of the program, so there are only so many.
type jsonPlans struct {
	mu      sync.RWMutex
	known   map[reflect.Type]*jsonPlan
	buffers sync.Pool // *[]byte
}

// marshal is append without a buffer; the result is as large as need be.
func (p *jsonPlans) marshal(obj any) ([]byte, error) {
	buf, _ := p.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	data, err := p.append((*buf)[:0], obj)
	if err != nil {
		return nil, err
	}
	if *buf = data; cap(data) <= largestAnswer {
		defer p.buffers.Put(buf)
	}
	return bytes.Clone(data), nil
}

// append appends the JSON form of what obj, a pointer, points to.
func (p *jsonPlans) append(buf []byte, obj any) ([]byte, error) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Implements(marshalerType) {
		return appendGeneral(buf, v)
	}
	return p.of(v.Type().Elem()).append(buf, v.Elem())
}

func (p *jsonPlans) of(t reflect.Type) *jsonPlan {
	p.mu.RLock()
	plan := p.known[t]
	p.mu.RUnlock()
	if plan != nil {
		return plan
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Plans of types that refer to each other are of use only when all of them are made.
	made := map[reflect.Type]*jsonPlan{}
	plan = p.plan(t, made)
	if p.known == nil {
		p.known = map[reflect.Type]*jsonPlan{}
	}
	for t, plan := range made {
		p.known[t] = plan
	}
	return plan
}

var (
	marshalerType = reflect.TypeFor[json.Marshaler]()
	texterType    = reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()
)

func (p *jsonPlans) plan(t reflect.Type, made map[reflect.Type]*jsonPlan) *jsonPlan {
	if plan := p.known[t]; plan != nil {
		return plan
	}
	if plan := made[t]; plan != nil {
		return plan
	}
	out := &jsonPlan{}
	made[t] = out
	switch t {
	case reflect.TypeFor[metav1.Time]():
		out.kind = jsonTime
		return out
	case reflect.TypeFor[resource.Quantity]():
		out.kind = jsonQuantity
		return out
	case reflect.TypeFor[metav1.FieldsV1]():
		out.kind = jsonFields
		return out
	}
	if t.Kind() != reflect.Pointer {
		if at := reflect.PointerTo(t); at.Implements(marshalerType) || at.Implements(texterType) {
			return out
		}
	}
	switch t.Kind() {
	case reflect.String:
		out.kind = jsonString
	case reflect.Bool:
		out.kind = jsonBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		out.kind = jsonInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		out.kind = jsonUint
	case reflect.Pointer:
		out.kind, out.element = jsonPointer, p.plan(t.Elem(), made)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if t.Elem() == reflect.TypeFor[byte]() {
				out.kind = jsonBytes
			}
			break
		}
		out.kind, out.element = jsonSlice, p.plan(t.Elem(), made)
	case reflect.Map:
		if k := t.Key(); k.Kind() == reflect.String && !k.Implements(texterType) {
			out.kind, out.element = jsonMap, p.plan(t.Elem(), made)
		}
	case reflect.Struct:
		if fields, ok := p.structFields(t, nil, made); ok {
			out.kind, out.fields = jsonStruct, fields
		}
	}
	return out
}

// structFields says no when encoding/json would have to choose between fields.
func (p *jsonPlans) structFields(t reflect.Type, index []int, made map[reflect.Type]*jsonPlan) (out []jsonField, ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		options := strings.Split(rest, ",")
		at := append(slices.Clone(index), i)
		switch {
		case !f.IsExported() || slices.Contains(options, "string"):
			return nil, false
		case f.Anonymous && name == "":
			if f.Type.Kind() != reflect.Struct {
				return nil, false
			}
			inner, ok := p.structFields(f.Type, at, made)
			if !ok {
				return nil, false
			}
			out = append(out, inner...)
			continue
		}
		if name == "" {
			name = f.Name
		}
		plain, err := appendText(nil, name)
		if err != nil {
			return nil, false
		}
		field := jsonField{index: at, open: string(plain) + ":", omitEmpty: slices.Contains(options, "omitempty"), plan: p.plan(f.Type, made)}
		if slices.Contains(options, "omitzero") {
			field.omitZero = value.OmitZeroFunc(f.Type)
		}
		if slices.ContainsFunc(out, func(o jsonField) bool { return o.open == field.open }) {
			return nil, false
		}
		out = append(out, field)
	}
	return out, true
}

func (p *jsonPlan) append(buf []byte, v reflect.Value) ([]byte, error) {
	switch p.kind {
	case jsonString:
		return appendText(buf, v.String())
	case jsonBool:
		return strconv.AppendBool(buf, v.Bool()), nil
	case jsonInt:
		return strconv.AppendInt(buf, v.Int(), 10), nil
	case jsonUint:
		return strconv.AppendUint(buf, v.Uint(), 10), nil
	case jsonPointer:
		if v.IsNil() {
			return append(buf, "null"...), nil
		}
		return p.element.append(buf, v.Elem())
	case jsonStruct:
		return p.appendStruct(buf, v)
	case jsonSlice:
		return p.appendSlice(buf, v)
	case jsonMap:
		return p.appendMap(buf, v)
	case jsonBytes:
		if v.IsNil() {
			return append(buf, "null"...), nil
		}
		buf = append(buf, '"')
		buf = base64.StdEncoding.AppendEncode(buf, v.Bytes())
		return append(buf, '"'), nil
	}
	if !v.CanAddr() {
		if p.kind == jsonGeneral {
			return appendGeneral(buf, v) // without an address some types have no form of their own
		}
		twin := reflect.New(v.Type()).Elem()
		twin.Set(v)
		v = twin
	}
	switch o := v.Addr().Interface().(type) {
	case *metav1.Time:
		if o.IsZero() {
			return append(buf, "null"...), nil
		}
		buf = append(buf, '"')
		buf = o.UTC().AppendFormat(buf, time.RFC3339)
		return append(buf, '"'), nil
	case *resource.Quantity:
		text, err := o.MarshalJSON()
		return append(buf, text...), err
	case *metav1.FieldsV1:
		// Field sets are written without spaces; those of clients may have them, or what is escaped in JSON within HTML.
		if raw := o.GetRawBytes(); len(raw) > 0 && isPlain(raw) {
			return append(buf, raw...), nil
		}
	}
	return appendGeneral(buf, v.Addr())
}

func appendGeneral(buf []byte, v reflect.Value) ([]byte, error) {
	data, err := json.Marshal(v.Interface())
	return append(buf, data...), err
}

func (p *jsonPlan) appendStruct(buf []byte, v reflect.Value) (_ []byte, err error) {
	buf = append(buf, '{')
	start := len(buf)
	for i := range p.fields {
		f := &p.fields[i]
		of := v.Field(f.index[0])
		for _, next := range f.index[1:] {
			of = of.Field(next)
		}
		if f.omitEmpty && isEmptyJSON(of) || f.omitZero != nil && f.omitZero(of) {
			continue
		}
		if len(buf) > start {
			buf = append(buf, ',')
		}
		buf = append(buf, f.open...)
		if buf, err = f.plan.append(buf, of); err != nil {
			return nil, err
		}
	}
	return append(buf, '}'), nil
}

func (p *jsonPlan) appendSlice(buf []byte, v reflect.Value) (_ []byte, err error) {
	if v.IsNil() {
		return append(buf, "null"...), nil
	}
	buf = append(buf, '[')
	for i := range v.Len() {
		if i > 0 {
			buf = append(buf, ',')
		}
		if buf, err = p.element.append(buf, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(buf, ']'), nil
}

func (p *jsonPlan) appendMap(buf []byte, v reflect.Value) (_ []byte, err error) {
	if v.IsNil() {
		return append(buf, "null"...), nil
	}
	type pair struct {
		key string
		of  reflect.Value
	}
	var few [8]pair
	pairs := few[:0]
	for iter := v.MapRange(); iter.Next(); {
		pairs = append(pairs, pair{iter.Key().String(), iter.Value()})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
	buf = append(buf, '{')
	for i, e := range pairs {
		if i > 0 {
			buf = append(buf, ',')
		}
		if buf, err = appendText(buf, e.key); err != nil {
			return nil, err
		}
		if buf, err = p.element.append(append(buf, ':'), e.of); err != nil {
			return nil, err
		}
	}
	return append(buf, '}'), nil
}

// appendText appends a string; those with something to escape are left to encoding/json.
func appendText(buf []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; !plain[c] || c == '"' || c == '\\' {
			data, err := json.Marshal(s)
			return append(buf, data...), err
		}
	}
	buf = append(buf, '"')
	buf = append(buf, s...)
	return append(buf, '"'), nil
}

// plain are the characters that encoding/json leaves alone, and those that have a meaning in JSON.
var plain = func() (out [256]bool) {
	for c := ' '; c <= '~'; c++ {
		out[c] = c != '<' && c != '>' && c != '&'
	}
	return out
}()

// isPlain reports whether nothing in data has to be escaped or left out.
func isPlain(data []byte) bool {
	for _, c := range data {
		if !plain[c] || c == ' ' {
			return false
		}
	}
	return true
}

func isEmptyJSON(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map, reflect.Array:
		return v.Len() == 0
	case reflect.Pointer, reflect.Interface:
		return v.IsNil()
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
		return v.IsZero()
	}
	return false
}
