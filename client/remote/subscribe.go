package remote

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa/api"
	"proa/client"
)

// Waits between attempts to reach the server, which may be away for a while.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 10 * time.Second
)

type objectKey struct{ namespace, name string }

func keyOf(obj api.Object) objectKey { return objectKey{obj.GetNamespace(), obj.GetName()} }

// Subscribe follows the scopes until ctx ends. While the server is away, the last known state stands.
func (c *Client) Subscribe(ctx context.Context, handle func(client.Event), scopes ...client.Scope) error {
	var mu sync.Mutex // one event at a time, across scopes
	deliver := func(e client.Event) {
		mu.Lock()
		defer mu.Unlock()
		handle(e)
	}
	var listed, running sync.WaitGroup
	listed.Add(len(scopes))
	for _, s := range scopes {
		f := &follower{client: c, scope: s, deliver: deliver, known: map[objectKey]api.Object{}, listed: sync.OnceFunc(listed.Done)}
		running.Go(func() { f.run(ctx) })
	}
	running.Go(func() {
		listed.Wait()
		if ctx.Err() == nil {
			deliver(client.Event{})
		}
	})
	running.Wait()
	return nil
}

// follower keeps up with one scope.
type follower struct {
	client  *Client
	scope   client.Scope
	deliver func(client.Event)
	known   map[objectKey]api.Object
	listed  func()
}

func (f *follower) options() metav1.ListOptions {
	var o metav1.ListOptions
	if f.scope.Labels != nil {
		o.LabelSelector = f.scope.Labels.String()
	}
	if f.scope.Fields != nil {
		o.FieldSelector = f.scope.Fields.String()
	}
	return o
}

func (f *follower) run(ctx context.Context) {
	defer f.listed() // so that nobody waits for a scope that ended
	wait := firstWait
	version := ""
	for ctx.Err() == nil {
		var err error
		if version == "" {
			version, err = f.list(ctx)
		}
		if err == nil {
			f.listed()
			var next string
			next, err = f.watch(ctx, version)
			if next != version {
				wait = firstWait
			}
			version = next
		}
		if gone(err) {
			version = "" // list anew
			continue
		}
		if err == nil {
			continue // the server ends watches now and then
		}
		if ctx.Err() == nil {
			f.client.config.Log.Warn("watch interrupted", "resource", f.scope.Resource.Key(), "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait + rand.N(wait/4+1)):
		}
		wait = min(2*wait, lastWait)
	}
}

func gone(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// list brings the known state up to date and tells the differences.
func (f *follower) list(ctx context.Context) (string, error) {
	objects, version, err := f.client.list(ctx, f.scope.Resource, f.scope.Namespace, f.options())
	if err != nil {
		return "", err
	}
	seen := make(map[objectKey]bool, len(objects))
	for _, obj := range objects {
		seen[keyOf(obj)] = true
		f.changed(obj)
	}
	for key, old := range f.known {
		if !seen[key] {
			f.removed(old)
		}
	}
	return version, nil
}

func (f *follower) changed(obj api.Object) {
	old := f.known[keyOf(obj)]
	if old != nil && old.GetUID() == obj.GetUID() && old.GetResourceVersion() == obj.GetResourceVersion() {
		return
	}
	if old != nil && old.GetUID() != obj.GetUID() {
		f.removed(old)
		old = nil
	}
	f.known[keyOf(obj)] = obj
	f.deliver(client.Event{Resource: f.scope.Resource, Old: old, New: obj})
}

func (f *follower) removed(old api.Object) {
	delete(f.known, keyOf(old))
	f.deliver(client.Event{Resource: f.scope.Resource, Old: old})
}

// watch follows the changes after version until the server ends it, and returns how far it came.
func (f *follower) watch(ctx context.Context, version string) (string, error) {
	r := f.scope.Resource
	req, err := f.client.request(http.MethodGet, r, f.scope.Namespace, "", "")
	if err != nil {
		return version, err
	}
	opts := f.options()
	opts.Watch, opts.ResourceVersion, opts.AllowWatchBookmarks = true, version, true
	w, err := req.VersionedParams(&opts, f.client.params).Watch(ctx)
	if err != nil {
		return version, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return version, apierrors.FromObject(e.Object)
		}
		obj, ok := e.Object.(api.Object)
		if !ok {
			return version, fmt.Errorf("watch of %s sent a %T", r.Key(), e.Object)
		}
		version = obj.GetResourceVersion()
		obj.GetObjectKind().SetGroupVersionKind(r.GroupVersionKind)
		switch e.Type {
		case watch.Added, watch.Modified:
			f.changed(obj)
		case watch.Deleted:
			if old := f.known[keyOf(obj)]; old != nil {
				f.removed(old)
			}
		}
	}
	if ctx.Err() != nil {
		return version, ctx.Err()
	}
	return version, nil
}

// Lister is a cache that a subscription feeds.
func (c *Client) Lister(ctx context.Context, scope client.Scope) client.Lister {
	l := &lister{ready: make(chan struct{}), done: ctx.Done(), objects: map[objectKey]api.Object{}}
	go func() {
		// It ends with ctx, and only then.
		_ = c.Subscribe(ctx, l.apply, scope)
	}()
	return l
}

type lister struct {
	ready chan struct{}
	done  <-chan struct{}

	mu      sync.RWMutex
	objects map[objectKey]api.Object
}

func (l *lister) apply(e client.Event) {
	if e.Synced() {
		close(l.ready)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.New != nil {
		l.objects[keyOf(e.New)] = e.New
	} else {
		delete(l.objects, keyOf(e.Old))
	}
}

func (l *lister) wait() {
	select {
	case <-l.ready:
	case <-l.done:
	}
}

// Get returns an object as last seen.
func (l *lister) Get(namespace, name string) (api.Object, bool) {
	l.wait()
	l.mu.RLock()
	defer l.mu.RUnlock()
	obj, ok := l.objects[objectKey{namespace, name}]
	return obj, ok
}

// All yields the objects of a namespace in name order.
func (l *lister) All(namespace string) iter.Seq[api.Object] {
	return func(yield func(api.Object) bool) {
		l.wait()
		l.mu.RLock()
		var list []api.Object
		for key, obj := range l.objects {
			if namespace == "" || key.namespace == namespace {
				list = append(list, obj)
			}
		}
		l.mu.RUnlock()
		slices.SortFunc(list, func(a, b api.Object) int {
			return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
		})
		for _, obj := range list {
			if !yield(obj) {
				return
			}
		}
	}
}
