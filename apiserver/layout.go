package apiserver

import (
	"reflect"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa/api"
)

// layout says where the parts of a kind's struct are, so that the generic rules about metadata, status and the rest work
// for all kinds.
type layout struct {
	meta, status int
	// rest are the fields besides type meta, metadata and status.
	rest []int
}

func layoutOf(obj api.Object) *layout {
	l := &layout{meta: -1, status: -1}
	t := reflect.TypeOf(obj).Elem()
	for i := range t.NumField() {
		switch t.Field(i).Name {
		case "TypeMeta":
		case "ObjectMeta":
			l.meta = i
		case "Status":
			l.status = i
		default:
			l.rest = append(l.rest, i)
		}
	}
	return l
}

// shallow gives a copy of an object of one of Go's types that shares everything below.
func shallow(obj api.Object) api.Object {
	twin := reflect.New(reflect.TypeOf(obj).Elem())
	twin.Elem().Set(reflect.ValueOf(obj).Elem())
	return twin.Interface().(api.Object)
}

// withoutRest gives a shallow copy that has only metadata and status.
func (l *layout) withoutRest(obj api.Object) api.Object {
	out := shallow(obj)
	l.clearRest(out)
	return out
}

// clearRest empties everything but metadata and status.
func (l *layout) clearRest(obj api.Object) {
	for _, i := range l.rest {
		reflect.ValueOf(obj).Elem().Field(i).SetZero()
	}
}

// keepStatus takes the status of from.
func (l *layout) keepStatus(obj, from api.Object) {
	if l.status >= 0 {
		reflect.ValueOf(obj).Elem().Field(l.status).Set(reflect.ValueOf(from).Elem().Field(l.status))
	}
}

// clearStatus empties the status.
func (l *layout) clearStatus(obj api.Object) {
	if l.status >= 0 {
		reflect.ValueOf(obj).Elem().Field(l.status).SetZero()
	}
}

// keepRest takes everything but metadata and status from from.
func (l *layout) keepRest(obj, from api.Object) {
	to, source := reflect.ValueOf(obj).Elem(), reflect.ValueOf(from).Elem()
	for _, i := range l.rest {
		to.Field(i).Set(source.Field(i))
	}
}

// sameStatus reports whether the status is equal.
func (l *layout) sameStatus(a, b api.Object) bool {
	return l.status < 0 || apiequality.Semantic.DeepEqual(
		reflect.ValueOf(a).Elem().Field(l.status).Addr().Interface(), reflect.ValueOf(b).Elem().Field(l.status).Addr().Interface())
}

// sameRest reports whether everything but metadata and status is equal.
func (l *layout) sameRest(a, b api.Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for _, i := range l.rest {
		if !apiequality.Semantic.DeepEqual(x.Field(i).Addr().Interface(), y.Field(i).Addr().Interface()) {
			return false
		}
	}
	return true
}
