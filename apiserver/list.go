package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/store"
)

// page is the answer of a list.
type page struct {
	objects   []*object
	revision  int64
	next      string
	remaining *int64
}

// continuation is what a continue token says.
type continuation struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func (c continuation) encode() string {
	c.Version = continueVersion
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func decodeContinue(token string) (continuation, error) {
	var c continuation
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && (c.Version != continueVersion || c.Start == "" || strings.Contains(c.Start, "..")) {
		err = errors.New("not a token of this server")
	}
	if err != nil {
		return c, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	return c, nil
}

func checkListOptions(opts *metav1.ListOptions) error {
	errs := internalvalidation.ValidateListOptions(&internalversion.ListOptions{
		Watch: opts.Watch, AllowWatchBookmarks: opts.AllowWatchBookmarks, ResourceVersion: opts.ResourceVersion,
		ResourceVersionMatch: opts.ResourceVersionMatch, Limit: opts.Limit, Continue: opts.Continue,
		SendInitialEvents: opts.SendInitialEvents,
	}, true)
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

func parseRevision(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", text, err))
	}
	return int64(n), nil
}

// futureWait is how long a read waits, in seconds, for a revision that has not come yet.
const futureWait = 3

func tooLarge(revision, present int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", revision, present), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// list reads a page.
func (s *Server) list(ctx context.Context, v *served, namespace string, sel *selector, opts *metav1.ListOptions) (*page, error) {
	if err := checkListOptions(opts); err != nil {
		return nil, err
	}
	revision, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	scope, start := v.scope(namespace), ""
	var snap store.Snapshot
	switch {
	case opts.Continue != "" && revision > 0:
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case opts.Continue != "":
		c, err := decodeContinue(opts.Continue)
		if err != nil {
			return nil, err
		}
		start = scope + c.Start
		if c.Revision < 0 {
			snap = s.store.Snapshot()
		} else if snap, err = s.store.SnapshotAt(ctx, c.Revision); err != nil {
			if errors.Is(err, store.ErrCompacted) {
				return nil, expiredContinue(c)
			}
			return nil, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %v", err))
		}
	case opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact:
		if snap, err = s.store.SnapshotAt(ctx, revision); err != nil {
			switch {
			case errors.Is(err, store.ErrCompacted):
				return nil, apierrors.NewResourceExpired("The provided resource version is no longer available.")
			case errors.Is(err, store.ErrFuture):
				return nil, tooLarge(revision, s.store.Revision())
			}
			return nil, s.storeError(err)
		}
	default:
		if err := s.reach(ctx, revision); err != nil {
			return nil, err
		}
		snap = s.store.Snapshot()
	}
	out := &page{revision: max(snap.Revision(), 1)}
	if opts.Limit == 0 && sel.everything() {
		out.objects = make([]*object, 0, snap.Count(scope, start))
	}
	prefix := scope
	if name, ok := sel.exact("metadata.name"); ok && (namespace != "" || !v.Namespaced) {
		// One name is one key.
		prefix = scope + name
	}
	last := ""
	for version := range snap.Range(prefix, start) {
		o := version.Value.(*object)
		if !sel.matches(o.Object) {
			continue
		}
		if opts.Limit > 0 && int64(len(out.objects)) == opts.Limit {
			// Just behind the last object, so that one that is deleted meanwhile does no harm.
			out.next = continuation{Revision: snap.Revision(), Start: strings.TrimPrefix(last, scope) + "\x00"}.encode()
			if sel.everything() {
				remaining := int64(snap.Count(scope, last+"\x00"))
				out.remaining = &remaining
			}
			break
		}
		out.objects = append(out.objects, o)
		last = version.Key
	}
	return out, nil
}

// reach waits a moment for a revision.
func (s *Server) reach(ctx context.Context, revision int64) error {
	if revision <= s.store.Revision() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, futureWait*second)
	defer cancel()
	if err := s.store.Wait(wait, revision); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return tooLarge(revision, s.store.Revision())
	}
	return nil
}

func expiredContinue(c continuation) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, " +
		"or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - " +
		"objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = continuation{Revision: -1, Start: c.Start}.encode()
	return err
}

func (p *page) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.revision, 10), Continue: p.next, RemainingItemCount: p.remaining}
}

// list answers GET of a collection.
func (x *exchange) list() error {
	var opts metav1.ListOptions
	if err := x.s.decodeOptions(x.r.URL.Query(), &opts); err != nil {
		return err
	}
	f, ok := negotiate(x.r, false)
	if !ok {
		return notAcceptable(typeJSON, typeYAML, typeProtobuf)
	}
	if x.v.Virtual {
		return x.writeList(f, &page{revision: max(x.s.store.Revision(), 1)})
	}
	sel, err := parseSelector(x.v, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	p, err := x.s.list(x.r.Context(), x.v, x.namespace, sel, &opts)
	if err != nil {
		return err
	}
	return x.writeList(f, p)
}

func (x *exchange) writeList(f format, p *page) error {
	if f.view == whole && x.v.version == nil && !f.pretty && f.encoding != asYAML && !acceptsGzip(x.r) {
		parts, err := x.listParts(f, p)
		if err != nil {
			return err
		}
		parts.send(x.w, x.r, f)
		return nil
	}
	data, err := x.encodeList(f, p)
	if err != nil {
		return err
	}
	_ = send(x.w, x.r, http.StatusOK, f, data)
	return nil
}

func (x *exchange) encodeList(f format, p *page) ([]byte, error) {
	switch f.view {
	case tableView:
		t, err := x.table(x.v, p.objects, f.version, true)
		if err != nil {
			return nil, err
		}
		t.ListMeta = p.meta()
		data, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		return finish(f, data)
	case partialListView:
		list := &metav1.PartialObjectMetadataList{ListMeta: p.meta(), Items: make([]metav1.PartialObjectMetadata, 0, len(p.objects))}
		for _, o := range p.objects {
			partial := partialOf(o.Object)
			partial.SetGroupVersionKind(metaKind(f.version, "PartialObjectMetadata"))
			list.Items = append(list.Items, *partial)
		}
		return encodeAny(f, metaKind(f.version, "PartialObjectMetadataList"), list)
	case partialView:
		return nil, apierrors.NewBadRequest("you requested PartialObjectMetadata, but the requested object is a list")
	}
	if x.v.version != nil {
		return x.convertedList(f, x.v.listKind(), p)
	}
	parts, err := x.listParts(f, p)
	if err != nil {
		return nil, err
	}
	data := make([]byte, 0, parts.size+1)
	for part := range parts.all {
		data = append(data, part...)
	}
	if f.encoding == asProtobuf {
		return data, nil
	}
	return finish(f, data[:len(data)-1])
}

// convertedList is a list in another version than the stored one.
func (x *exchange) convertedList(f format, kind schema.GroupVersionKind, p *page) ([]byte, error) {
	list := x.v.newList()
	value := reflect.ValueOf(list).Elem()
	value.FieldByName("ListMeta").Set(reflect.ValueOf(p.meta()))
	items := value.FieldByName("Items")
	items.Set(reflect.MakeSlice(items.Type(), 0, len(p.objects)))
	for _, o := range p.objects {
		obj, err := x.v.fromStorage(o.Object)
		if err != nil {
			return nil, err
		}
		items.Set(reflect.Append(items, reflect.ValueOf(obj).Elem()))
	}
	return encodeAny(f, kind, list)
}
