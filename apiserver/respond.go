package apiserver

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa/api"
	"proa/store"
)

// gzipFrom is the size from which answers are compressed for clients that accept it.
const gzipFrom = 128 << 10

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// send writes a body. A failure means that the client has gone and needs no answer.
func send(w http.ResponseWriter, r *http.Request, code int, f format, data []byte) error {
	header := w.Header()
	header.Set("Content-Type", f.contentType())
	if len(data) >= gzipFrom && acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
		w.WriteHeader(code)
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err == nil {
			_, err = z.Write(data)
			err = errors.Join(err, z.Close())
		}
		return err
	}
	header.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(code)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// finish ends a JSON document as the format wants it.
func finish(f format, data []byte) ([]byte, error) {
	switch {
	case f.encoding == asYAML:
		return yaml.JSONToYAML(data)
	case f.pretty:
		var buf bytes.Buffer
		if err := json.Indent(&buf, data, "", "  "); err != nil {
			return nil, err
		}
		buf.WriteByte('\n')
		return buf.Bytes(), nil
	}
	return append(data, '\n'), nil
}

// encodeAny encodes an object of any kind, whose kind and version are gvk.
func encodeAny(f format, gvk schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	if f.encoding == asProtobuf {
		data, err := encodeWire(gvk, obj)
		if !errors.Is(err, errNoProtobuf) {
			return data, err
		}
		f.encoding = asJSON
	}
	if obj.GetObjectKind().GroupVersionKind() != gvk {
		obj = obj.DeepCopyObject()
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return finish(f, data)
}

// writeAny answers with an object of any kind.
func (s *Server) writeAny(w http.ResponseWriter, r *http.Request, code int, gvk schema.GroupVersionKind, obj runtime.Object) error {
	f, ok := negotiate(r, false)
	if !ok {
		return notAcceptable(typeJSON, typeYAML, typeProtobuf)
	}
	f.view = whole
	if _, ok := obj.(marshaler); !ok && f.encoding == asProtobuf {
		f.encoding = asJSON
	}
	data, err := encodeAny(f, gvk, obj)
	if err != nil {
		return err
	}
	_ = send(w, r, code, f, data)
	return nil
}

// asStatus makes an API status of any error; this is the only place that does.
func asStatus(err error) metav1.Status {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		out := status.Status()
		if out.Code == 0 {
			out.Code = http.StatusInternalServerError
		}
		return out
	case errors.Is(err, store.ErrBroken), errors.Is(err, store.ErrClosed):
		return apierrors.NewServiceUnavailable(err.Error()).Status()
	}
	return apierrors.NewInternalError(err).Status()
}

var statusKind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}

func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	status := asStatus(err)
	if status.Code >= http.StatusInternalServerError {
		s.log.Warn("request failed", "path", r.URL.Path, "method", r.Method, "err", err)
	}
	if seconds := status.Details; seconds != nil && seconds.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(seconds.RetryAfterSeconds)))
	}
	f, ok := negotiate(r, false)
	if !ok {
		f = format{}
	}
	f.view = whole
	data, failure := encodeAny(f, statusKind, &status)
	if failure != nil {
		http.Error(w, failure.Error(), http.StatusInternalServerError)
		return
	}
	_ = send(w, r, int(status.Code), f, data)
}

// encodeObject encodes one object of v.
func (x *exchange) encodeObject(f format, v *served, o *object) ([]byte, error) {
	switch f.view {
	case tableView:
		table, err := x.table(v, []*object{o}, f.version, true)
		if err != nil {
			return nil, err
		}
		table.ResourceVersion = o.GetResourceVersion()
		data, err := json.Marshal(table)
		if err != nil {
			return nil, err
		}
		return finish(f, data)
	case partialView:
		partial := partialOf(o.Object)
		return encodeAny(f, metaKind(f.version, "PartialObjectMetadata"), partial)
	case partialListView:
		return nil, apierrors.NewBadRequest("you requested PartialObjectMetadataList, but the requested object is not a list")
	}
	return wholeObject(f, v, o)
}

func wholeObject(f format, v *served, o *object) ([]byte, error) {
	if v.version == nil {
		if f.encoding == asProtobuf {
			body, err := o.bodyWire()
			if err != nil {
				return nil, err
			}
			return envelope(v.gvk, body), nil
		}
		body, err := o.bodyJSON()
		if err != nil {
			return nil, err
		}
		return finish(f, withTypeJSON(make([]byte, 0, len(body)+len(v.prefixJSON)+2), v.prefixJSON, body))
	}
	obj, err := v.fromStorage(o.Object)
	if err != nil {
		return nil, err
	}
	return encodeAny(f, v.gvk, obj)
}

func (x *exchange) writeObject(code int, o *object) error {
	f, ok := negotiate(x.r, false)
	if !ok {
		return notAcceptable(typeJSON, typeYAML, typeProtobuf)
	}
	if _, ok := o.Object.(marshaler); !ok && f.encoding == asProtobuf {
		return notAcceptable(typeJSON, typeYAML)
	}
	if f.view == whole && x.v.version == nil && !f.pretty && f.encoding != asYAML && x.s.watchers.Load() == 0 {
		a := x.s.newAnswer()
		if err := a.wholeOnce(f, x.v, o); err != nil {
			return err
		}
		if send(x.w, x.r, code, f, a.buf) == nil {
			x.s.done(a) // after a failure it may be on its way still
		}
		return nil
	}
	data, err := x.encodeObject(f, x.v, o)
	if err != nil {
		return err
	}
	_ = send(x.w, x.r, code, f, data)
	return nil
}

func metaKind(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: metav1.GroupName, Version: version, Kind: kind}
}

// partialOf is the metadata of an object.
func partialOf(obj api.Object) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(), CreationTimestamp: obj.GetCreationTimestamp(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
		Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}}
	return out
}
