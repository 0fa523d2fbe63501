package apiserver

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"proa/api"
	"proa/apiserver/request"
)

// maxBody is the size of the largest body that is read.
const maxBody = 3 << 20

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(io.LimitReader(r.Body, maxBody+1)); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if buf.Len() > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return buf.Bytes(), nil
}

// bodyEncoding is the format that the request's Content-Type names.
func bodyEncoding(r *http.Request) (encodingKind, error) {
	given := r.Header.Get("Content-Type")
	if given == "" || given == typeJSON {
		return asJSON, nil
	}
	media, _, err := mime.ParseMediaType(given)
	if err == nil {
		switch media {
		case typeJSON:
			return asJSON, nil
		case typeYAML, "application/x-yaml":
			return asYAML, nil
		case typeProtobuf:
			return asProtobuf, nil
		}
	}
	return 0, unsupportedMedia(typeJSON, typeYAML, typeProtobuf)
}

func unsupportedMedia(accepted ...string) error {
	return statusOf(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: "+strings.Join(accepted, ", "))
}

func notAcceptable(accepted ...string) error {
	return statusOf(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: "+strings.Join(accepted, ", "))
}

// fieldValidation is what to do about fields that are unknown or given twice.
type fieldValidation string

func validationOf(given string) fieldValidation {
	if given == "" {
		return metav1.FieldValidationWarn
	}
	return fieldValidation(given)
}

// decodeInto reads a body into an empty object whose kind must be gvk, and returns complaints about unknown fields. Fields
// of later releases are unknown ones. In protobuf, unknown fields are dropped without a word, as every reader of it does.
func decodeInto(data []byte, encoding encodingKind, obj runtime.Object, gvk schema.GroupVersionKind, how fieldValidation) ([]error, error) {
	var strict []error
	// A body that says of what kind it is, or could be of the kind that is wanted, is told apart from one that cannot be
	// read at all.
	cannot := func(got schema.GroupVersionKind, err error) error {
		got.Kind = cmp.Or(got.Kind, gvk.Kind)
		got.Version = cmp.Or(got.Version, gvk.Version)
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, gvk.Kind, err))
	}
	unrecognized := func(err error) error {
		return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", gvk.Kind, err, summary(data)))
	}
	switch encoding {
	case asProtobuf:
		body, got, err := openEnvelope(data)
		if err != nil {
			return nil, unrecognized(err)
		}
		if err := expectKind(got, gvk); err != nil {
			return nil, err
		}
		u, ok := obj.(unmarshaler)
		if !ok {
			return nil, cannot(got, errNoProtobuf)
		}
		if err := u.Unmarshal(body); err != nil {
			return nil, cannot(got, err)
		}
		api.PruneNewer(obj)
		return nil, nil
	case asYAML:
		var err error
		plain := data
		if data, err = yaml.YAMLToJSON(plain); err != nil {
			data = plain
			return nil, unrecognized(err)
		}
		if how != metav1.FieldValidationIgnore {
			if _, err := yaml.YAMLToJSONStrict(plain); err != nil {
				strict = append(strict, err)
			}
		}
	}
	if !utf8.Valid(data) {
		return nil, unrecognized(errors.New("the body is not valid UTF-8"))
	}
	more, err := decodeJSON(data, obj, how)
	if err != nil {
		var says metav1.TypeMeta
		if err := json.Unmarshal(data, &says); err != nil {
			return nil, unrecognized(fmt.Errorf("couldn't get version/kind; json parse error: %w", err))
		}
		return nil, cannot(says.GroupVersionKind(), err)
	}
	return append(strict, more...), expectKind(obj.GetObjectKind().GroupVersionKind(), gvk)
}

// decodeJSON is decodeInto for plain JSON, without a look at the kind.
func decodeJSON(data []byte, obj runtime.Object, how fieldValidation) (strict []error, err error) {
	if how == metav1.FieldValidationIgnore {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
	} else {
		strict, err = kjson.UnmarshalStrict(data, obj)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range api.PruneNewer(obj) {
		strict = append(strict, newerField(path))
	}
	return strict, nil
}

// summary shows the beginning of a body: as text when it looks like JSON, else as digits.
func summary(data []byte) string {
	if len(data) == 0 {
		return "<empty>"
	}
	rest := ""
	if len(data) > 30 {
		data, rest = data[:30], " ..."
	}
	if data[0] == '{' {
		return string(data) + rest
	}
	return hex.EncodeToString(data) + rest
}

// newerField is the path of a field that only later releases have.
type newerField string

func (f newerField) Error() string { return fmt.Sprintf("unknown field %q", string(f)) }

// dropNewer removes from a document in the general form the newer fields that strict complains about.
func dropNewer(doc map[string]any, strict []error) {
	for _, err := range strict {
		if path, ok := err.(newerField); ok {
			dropField(doc, string(path))
		}
	}
}

// dropField removes the field at a path such as "spec.containers[1].lifecycle".
func dropField(doc any, path string) {
	for path != "" {
		end := strings.IndexAny(path, ".[")
		switch {
		case path[0] == '[':
			closing := strings.IndexByte(path, ']')
			list, _ := doc.([]any)
			i, err := strconv.Atoi(path[1:max(closing, 1)])
			if err != nil || i >= len(list) {
				return
			}
			doc, path = list[i], path[closing+1:]
		case end == 0:
			path = path[1:]
		default:
			m, _ := doc.(map[string]any)
			if end < 0 {
				delete(m, path)
				return
			}
			doc, path = m[path[:end]], path[end:]
		}
	}
}

// expectKind checks what a body says about itself; it may say nothing.
func expectKind(got, want schema.GroupVersionKind) error {
	if got.Kind != "" && got.Kind != want.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: no kind %q is registered for the requested resource in version %q",
			got.Kind, got.Version, want.Kind, got.Kind, want.GroupVersion()))
	}
	if gv := got.GroupVersion(); !gv.Empty() && gv != want.GroupVersion() {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gv, want.GroupVersion()))
	}
	return nil
}

// complain turns strict errors into warnings or an error.
func complain(warn func(string), strict []error, how fieldValidation) error {
	if len(strict) == 0 || how == metav1.FieldValidationIgnore {
		return nil
	}
	if how == metav1.FieldValidationStrict {
		return apierrors.NewBadRequest(runtime.NewStrictDecodingError(strict).Error())
	}
	for _, err := range strict {
		warn(err.Error())
	}
	return nil
}

// decodeBody reads the request's body as an object of v and returns it in the storage version.
func (x *exchange) decodeBody(how fieldValidation) (api.Object, error) {
	encoding, err := bodyEncoding(x.r)
	if err != nil {
		return nil, err
	}
	data, err := readBody(x.r)
	if err != nil {
		return nil, err
	}
	obj := x.v.newObject()
	strict, err := decodeInto(data, encoding, obj, x.v.gvk, how)
	if err != nil {
		return nil, err
	}
	if err := complain(func(text string) { request.Warn(x.r.Context(), text) }, strict, how); err != nil {
		return nil, err
	}
	out, err := x.v.toStorage(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}
