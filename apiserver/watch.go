package apiserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"proa/api"
	"proa/store"
)

const second = time.Second

// bookmarkEvery is how often a watcher that asked for bookmarks hears how far it has come.
const bookmarkEvery = time.Minute

// frameLimit is the size from which what has been collected for a watcher is sent.
const frameLimit = 256 << 10

// watcher is one running watch over HTTP.
type watcher struct {
	*exchange
	format  format
	scope   string
	sel     *selector
	buf     []byte
	headers bool // the columns of a table have been sent
}

func (x *exchange) watch() error {
	var opts metav1.ListOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	opts.Watch = true
	if err := checkListOptions(&opts); err != nil {
		return err
	}
	f, ok := negotiate(x.r, true)
	if !ok {
		return notAcceptable(typeJSON, typeProtobuf+";stream=watch")
	}
	if f.view == partialListView {
		f.view = partialView
	}
	sel, err := parseSelector(x.v, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	if x.info.Name != "" && sel.fields == nil {
		err = sel.setFields(x.v, nameSelector(x.info.Name))
	}
	revision, failed := parseRevision(opts.ResourceVersion)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	timeout := time.Duration(30+rand.IntN(30)) * time.Minute
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * second
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), timeout)
	defer cancel()
	if err := x.s.reach(ctx, revision); err != nil {
		return err
	}
	x.s.watchers.Add(1)
	defer x.s.watchers.Add(-1)
	w := &watcher{exchange: x, format: f, scope: x.v.scope(x.namespace), sel: sel}
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if opts.SendInitialEvents == nil && revision == 0 {
		initial = true
	}
	var snap store.Snapshot
	after := revision
	if initial || revision == 0 {
		snap = x.s.store.Snapshot()
		after = snap.Revision()
	}
	cursor, err := x.s.store.Follow(after)
	header := x.w.Header()
	if err != nil {
		if !errors.Is(err, store.ErrCompacted) {
			return x.s.storeError(err)
		}
		// The watch itself is fine; that it can show nothing is its first and only event.
		header.Set("Content-Type", f.contentType())
		x.w.WriteHeader(http.StatusOK)
		w.fail(tooOld(revision, x.s.store.Compacted()))
		return w.flush()
	}
	header.Set("Content-Type", f.contentType())
	x.w.WriteHeader(http.StatusOK)
	if initial {
		for v := range snap.Range(w.scope, "") {
			if o := v.Value.(*object); sel.matches(o.Object) {
				if err := w.event(watch.Added, o); err != nil {
					return nil
				}
			}
			if len(w.buf) > frameLimit {
				if err := w.flush(); err != nil {
					return nil
				}
			}
		}
		if opts.SendInitialEvents != nil && opts.AllowWatchBookmarks {
			w.bookmark(after, true)
		}
	}
	if err := w.flush(); err != nil {
		return nil
	}
	w.follow(ctx, cursor, opts.AllowWatchBookmarks)
	return nil
}

func tooOld(revision, compacted int64) error {
	return apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(revision, 10) + " (" + strconv.FormatInt(compacted, 10) + ")")
}

// follow sends changes until ctx ends or the client goes.
func (w *watcher) follow(ctx context.Context, cursor *store.Cursor, bookmarks bool) {
	var tick <-chan time.Time
	if bookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			if bookmarks {
				w.bookmark(cursor.Revision(), false)
				_ = w.flush()
			}
			return
		case <-tick:
			w.bookmark(cursor.Revision(), false)
		case <-cursor.Changed():
			versions, err := cursor.Next(ctx)
			if err != nil {
				if errors.Is(err, store.ErrCompacted) {
					w.fail(tooOld(cursor.Revision(), w.s.store.Compacted()))
					_ = w.flush()
				}
				return
			}
			for _, v := range versions {
				if len(v.Key) < len(w.scope) || v.Key[:len(w.scope)] != w.scope {
					continue
				}
				if err := w.change(v); err != nil {
					w.fail(err)
					_ = w.flush()
					return
				}
				if len(w.buf) > frameLimit {
					if w.flush() != nil {
						return
					}
				}
			}
		}
		if w.flush() != nil {
			return
		}
	}
}

// change tells of one version, as the selector sees it.
func (w *watcher) change(v *store.Version) error {
	before := v.Prev != nil && v.Prev.Value != nil && w.sel.matches(v.Prev.Value.(*object).Object)
	after := v.Value != nil && w.sel.matches(v.Value.(*object).Object)
	switch {
	case after && before:
		return w.event(watch.Modified, v.Value.(*object))
	case after:
		return w.event(watch.Added, v.Value.(*object))
	case before:
		return w.event(watch.Deleted, w.s.deleted.of(v))
	}
	return nil
}

// event appends a frame for an object.
func (w *watcher) event(kind watch.EventType, o *object) error {
	if w.format.view == whole && w.v.version == nil && w.format.encoding == asJSON {
		body, err := o.bodyJSON()
		if err != nil {
			return err
		}
		w.buf = append(w.buf, `{"type":"`...)
		w.buf = append(w.buf, kind...)
		w.buf = append(w.buf, `","object":`...)
		w.buf = withTypeJSON(w.buf, w.v.prefixJSON, body)
		w.buf = append(w.buf, "}\n"...)
		return nil
	}
	if w.format.view == tableView {
		t, err := w.table(w.v, []*object{o}, w.format.version, !w.headers)
		if err != nil {
			return err
		}
		w.headers = true
		t.ResourceVersion = o.GetResourceVersion()
		data, err := json.Marshal(t)
		if err != nil {
			return err
		}
		w.frame(kind, data)
		return nil
	}
	data, err := w.encodeObject(format{encoding: w.format.encoding, view: w.format.view, version: w.format.version}, w.v, o)
	if err != nil {
		return err
	}
	w.frame(kind, data)
	return nil
}

// frame appends an event around an encoded object.
func (w *watcher) frame(kind watch.EventType, data []byte) {
	if w.format.encoding != asProtobuf {
		w.buf = append(w.buf, `{"type":"`...)
		w.buf = append(w.buf, kind...)
		w.buf = append(w.buf, `","object":`...)
		if n := len(data); n > 0 && data[n-1] == '\n' {
			data = data[:n-1]
		}
		w.buf = append(w.buf, data...)
		w.buf = append(w.buf, "}\n"...)
		return
	}
	// The event's object is a RawExtension, whose first field is the envelope.
	raw := 1 + uvarintLen(len(data)) + len(data)
	size := 1 + uvarintLen(len(kind)) + len(kind) + 1 + uvarintLen(raw) + raw
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(size))
	w.buf = fieldBytes(w.buf, 1, []byte(kind))
	w.buf = append(w.buf, 2<<3|2)
	w.buf = binary.AppendUvarint(w.buf, uint64(raw))
	w.buf = fieldBytes(w.buf, 1, data)
}

// bookmark says that everything up to revision has been sent.
func (w *watcher) bookmark(revision int64, initial bool) {
	obj := w.v.New()
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initial {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if err := w.event(watch.Bookmark, &object{served: w.v.storage, Object: obj}); err != nil {
		w.s.log.Error("bookmark not encoded", "err", err)
	}
}

// fail ends the watch with an error.
func (w *watcher) fail(err error) {
	status := asStatus(err)
	f := w.format
	f.view, f.pretty = whole, false
	data, err := encodeAny(f, statusKind, runtime.Object(&status))
	if err != nil {
		w.s.log.Error("status not encoded", "err", err)
		return
	}
	w.frame(watch.Error, data)
}

func (w *watcher) flush() error {
	if len(w.buf) > 0 {
		if _, err := w.w.Write(w.buf); err != nil {
			return err
		}
		if cap(w.buf) > 2*frameLimit {
			w.buf = nil
		}
		w.buf = w.buf[:0]
	}
	w.w.Flush()
	return nil
}

var _ api.Object = (*object)(nil)
