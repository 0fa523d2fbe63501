package apiserver

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// fieldPlan writes the set of fields that an object of one Go type has and the zero value of that type has not, in the form
// of managed fields. It knows beforehand which fields there are, in which order they are written, and which lists and maps are
// managed as a whole, so that the work left is one walk over the value. What it does not understand it refuses, and the
// general way through typed values, which gives the same result, is left to do it.
type fieldPlan struct {
	kind   planKind
	fields []plannedField // of a struct, by name
	// element is the plan of items of a list or values of a map.
	element *fieldPlan
	// keys name the fields that tell items of a list apart, sorted.
	keys []plannedKey
	// convert is set for types that have a form of their own in JSON.
	convert *value.TypeReflectCacheEntry
	// deep says of a leaf that it is a struct with more than plain fields.
	deep bool
}

type planKind int

const (
	refused   planKind = iota
	leaf               // scalars and whatever is managed as a whole
	structure          // a struct, field by field
	mapping            // a map, key by key
	setList            // a list of different scalars
	keyedList          // a list of structs told apart by keys
)

type plannedField struct {
	name  string
	entry *value.FieldCacheEntry
	plan  *fieldPlan
	// inZero says that the zero value of the struct has the field too.
	inZero bool
}

type plannedKey struct {
	entry *value.FieldCacheEntry
	name  string
	// fallback is the key's value where an item has none; nil: the item has no such key.
	fallback any
}

// planner makes the plans of a schema's types. Types refer to each other, also in circles.
type planner struct {
	schema *schema.Schema
	made   map[plannedType]*fieldPlan
}

type plannedType struct {
	t    reflect.Type
	name string
	// how overrides the relationship of the elements of a named type.
	how schema.ElementRelationship
}

func (p *planner) plan(t reflect.Type, ref schema.TypeRef) *fieldPlan {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	id := plannedType{t: t}
	if ref.NamedType != nil {
		id.name = *ref.NamedType
		if ref.ElementRelationship != nil {
			id.how = *ref.ElementRelationship
		}
		if known := p.made[id]; known != nil {
			return known
		}
	}
	out := &fieldPlan{}
	if ref.NamedType != nil {
		p.made[id] = out
	}
	atom, ok := p.schema.Resolve(ref)
	if !ok {
		return out
	}
	if entry := value.TypeReflectEntryOf(t); entry.CanConvertToUnstructured() {
		if isLeaf(atom) {
			out.kind, out.convert = leaf, entry
		}
		return out
	}
	switch {
	case isLeaf(atom):
		if t.Kind() != reflect.Interface {
			out.kind, out.deep = leaf, isDeep(t)
		}
	case atom.Scalar != nil: // sometimes a scalar, sometimes not
	case t.Kind() == reflect.Struct && atom.Map != nil:
		p.structure(out, t, atom.Map)
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && atom.Map != nil && len(atom.Map.Fields) == 0:
		out.kind, out.element = mapping, p.plan(t.Elem(), atom.Map.ElementType)
	case t.Kind() == reflect.Slice && atom.List != nil && atom.List.ElementRelationship == schema.Associative:
		p.list(out, t.Elem(), atom.List)
	}
	return out
}

// isLeaf reports whether a type is managed as a whole, whatever its values are.
func isLeaf(a schema.Atom) bool {
	return (a.Scalar != nil || a.List != nil || a.Map != nil) &&
		(a.List == nil || a.List.ElementRelationship == schema.Atomic) && (a.Map == nil || a.Map.ElementRelationship == schema.Atomic)
}

func isDeep(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if k := t.Field(i).Type.Kind(); k != reflect.String && (k < reflect.Bool || k > reflect.Float64) {
			return true
		}
	}
	return false
}

func (p *planner) structure(out *fieldPlan, t reflect.Type, m *schema.Map) {
	out.kind = structure
	zero := reflect.New(t).Elem()
	for _, entry := range value.TypeReflectEntryOf(t).OrderedFields() {
		of := entry.GetFrom(zero)
		f := plannedField{name: entry.JsonName, entry: entry, plan: &fieldPlan{}, inZero: !entry.CanOmit(of)}
		if field, ok := m.FindField(entry.JsonName); ok {
			f.plan = p.plan(of.Type(), field.Type)
		}
		out.fields = append(out.fields, f)
	}
}

func (p *planner) list(out *fieldPlan, item reflect.Type, l *schema.List) {
	out.element = p.plan(item, l.ElementType)
	if len(l.Keys) == 0 {
		if out.element.kind == leaf && out.element.convert == nil && item.Kind() == reflect.String {
			out.kind = setList
		}
		return
	}
	atom, ok := p.schema.Resolve(l.ElementType)
	if !ok || atom.Map == nil || item.Kind() != reflect.Struct {
		return
	}
	for _, name := range slices.Sorted(slices.Values(l.Keys)) {
		entry := value.TypeReflectEntryOf(item).Fields()[name]
		if entry == nil || entry.TypeEntry.CanConvertToUnstructured() {
			return
		}
		field, _ := atom.Map.FindField(name)
		out.keys = append(out.keys, plannedKey{entry, name, field.Default})
	}
	out.kind = keyedList
}

// without is the plan of a struct without some of its fields.
func (p *fieldPlan) without(names ...string) *fieldPlan {
	out := *p
	out.fields = slices.DeleteFunc(slices.Clone(p.fields), func(f plannedField) bool { return slices.Contains(names, f.name) })
	return &out
}

// fieldSet gives use the set of the struct v, as `{"f:spec":{...}}` or empty, valid during the call. It says no when it does not
// understand something.
func (p *fieldPlan) fieldSet(v reflect.Value, use func(set []byte)) bool {
	w := fieldWriters.Get().(*fieldWriter)
	defer fieldWriters.Put(w)
	w.buf, w.refused = append(w.buf[:0], '{'), false
	w.contents(p, v, true)
	if w.refused {
		return false
	}
	if len(w.buf) == 1 {
		w.buf = w.buf[:0]
	} else {
		w.buf = append(w.buf, '}')
	}
	use(w.buf)
	return true
}

// fieldWriter writes one set.
type fieldWriter struct {
	buf []byte
	// refused says that the walk met something that is not understood.
	refused bool
}

var fieldWriters = sync.Pool{New: func() any { return new(fieldWriter) }}

// element writes a part of an object, `"f:name":{...}`, unless it has nothing that the zero value has not. inZero says that
// the zero value of the whole has the part too.
func (w *fieldWriter) element(p *fieldPlan, v reflect.Value, inZero bool, name func()) {
	start := len(w.buf)
	if w.buf[start-1] != '{' {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(w.buf, '"')
	name()
	w.buf = append(w.buf, `":{`...)
	open := len(w.buf)
	zero := inZero // the zero value has the part, and not as null
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v, zero = v.Elem(), false
	}
	switch {
	case p.kind == refused:
		w.refused = true
	case p.isLeaf(v, zero):
		if zero && w.isZero(p, v) {
			w.buf = w.buf[:start]
			return
		}
	default:
		if !inZero {
			w.buf = append(w.buf, `".":{}`...)
		}
		before := len(w.buf)
		w.contents(p, v, zero)
		if len(w.buf) == before {
			if inZero {
				w.buf = w.buf[:start]
				return
			}
			w.buf = w.buf[:open]
		}
	}
	w.buf = append(w.buf, '}')
}

// isLeaf reports whether nothing below v is told apart. An empty list or map is a leaf: that it is there is all it says.
func (p *fieldPlan) isLeaf(v reflect.Value, inZero bool) bool {
	if p.kind == leaf {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		return true // nil
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	if inZero {
		return false
	}
	for i := range p.fields {
		if f := &p.fields[i]; f.inZero || !f.entry.CanOmit(f.entry.GetFrom(v)) {
			return false
		}
	}
	return true
}

// isZero compares a leaf with the zero value of its type, as JSON shows both.
func (w *fieldWriter) isZero(p *fieldPlan, v reflect.Value) bool {
	if p.convert != nil {
		a, err := p.convert.ToUnstructured(v)
		b, err2 := p.convert.ToUnstructured(reflect.Zero(v.Type()))
		w.refused = w.refused || err != nil || err2 != nil
		return reflect.DeepEqual(a, b)
	}
	if v.IsZero() {
		return true
	}
	w.refused = w.refused || p.deep // JSON may show nothing of it all the same
	return false
}

func (w *fieldWriter) contents(p *fieldPlan, v reflect.Value, inZero bool) {
	switch p.kind {
	case structure:
		for i := range p.fields {
			f := &p.fields[i]
			if of := f.entry.GetFrom(v); !f.entry.CanOmit(of) {
				w.element(f.plan, of, inZero && f.inZero, func() {
					w.buf = append(w.buf, "f:"...)
					w.buf = append(w.buf, f.name...)
				})
			}
		}
	case mapping:
		w.mapping(p, v)
	case setList:
		w.set(v)
	case keyedList:
		w.keyed(p, v)
	default:
		w.refused = true
	}
}

func (w *fieldWriter) mapping(p *fieldPlan, v reflect.Value) {
	keys := make([]string, 0, v.Len())
	for iter := v.MapRange(); iter.Next(); {
		keys = append(keys, iter.Key().String())
	}
	slices.Sort(keys)
	for _, k := range keys {
		w.element(p.element, v.MapIndex(reflect.ValueOf(k).Convert(v.Type().Key())), false, func() {
			w.buf = append(w.buf, "f:"...)
			w.text(k)
		})
	}
}

// text appends what stands for itself in JSON, also within a string within a string.
func (w *fieldWriter) text(s string) {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			w.refused = true
		}
	}
	w.buf = append(w.buf, s...)
}

func (w *fieldWriter) set(v reflect.Value) {
	items := make([]string, v.Len())
	for i := range items {
		items[i] = v.Index(i).String()
	}
	slices.Sort(items)
	for i, s := range items {
		if i > 0 && s == items[i-1] {
			w.refused = true
		}
		if w.buf[len(w.buf)-1] != '{' {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, `"v:\"`...)
		w.text(s)
		w.buf = append(w.buf, `\"":{}`...)
	}
}

// keyPart is what an item has for a key: a text, a number or nothing.
type keyPart struct {
	text          string
	number        int64
	isText, given bool
}

func (w *fieldWriter) keyPart(k *plannedKey, item reflect.Value) keyPart {
	v := k.entry.GetFrom(item)
	if k.entry.CanOmit(v) {
		text, isText := k.fallback.(string)
		w.refused = w.refused || !isText && k.fallback != nil
		return keyPart{text: text, isText: isText, given: isText}
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.String:
		return keyPart{text: v.String(), isText: true, given: true}
	case v.CanInt():
		return keyPart{number: v.Int(), given: true}
	}
	w.refused = true
	return keyPart{}
}

func (w *fieldWriter) keyed(p *fieldPlan, v reflect.Value) {
	n, width := v.Len(), len(p.keys)
	parts := make([]keyPart, n*width)
	order := make([]int, n)
	for i := range n {
		order[i] = i
		any := false
		for j := range p.keys {
			part := w.keyPart(&p.keys[j], v.Index(i))
			any = any || part.given
			if i > 0 && (part.given != parts[j].given || part.isText != parts[j].isText) {
				w.refused = true // items without the same keys are seldom, and their order is peculiar
			}
			parts[i*width+j] = part
		}
		w.refused = w.refused || !any
	}
	compare := func(a, b int) int {
		for j := range width {
			x, y := &parts[a*width+j], &parts[b*width+j]
			if c := cmp.Or(strings.Compare(x.text, y.text), cmp.Compare(x.number, y.number)); c != 0 {
				return c
			}
		}
		return 0
	}
	slices.SortFunc(order, compare)
	for at, i := range order {
		if at > 0 && compare(order[at-1], i) == 0 {
			w.refused = true
		}
		w.element(p.element, v.Index(i), false, func() { w.key(p.keys, parts[i*width:][:width]) })
	}
}

func (w *fieldWriter) key(keys []plannedKey, parts []keyPart) {
	w.buf = append(w.buf, `k:{`...)
	for j, part := range parts {
		if !part.given {
			continue
		}
		if w.buf[len(w.buf)-1] != '{' {
			w.buf = append(w.buf, ',')
		}
		w.buf = append(w.buf, `\"`...)
		w.buf = append(w.buf, keys[j].name...)
		w.buf = append(w.buf, `\":`...)
		if part.isText {
			w.buf = append(w.buf, `\"`...)
			w.text(part.text)
			w.buf = append(w.buf, `\"`...)
		} else {
			w.buf = strconv.AppendInt(w.buf, part.number, 10)
		}
	}
	w.buf = append(w.buf, '}')
}
