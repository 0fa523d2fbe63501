package node

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/client"
)

// sources follows the ConfigMaps and Secrets that pods use, each for as long as some pod does, and no others: a node may
// not read what none of its pods refers to.
type sources struct {
	ctx     context.Context
	client  client.Interface
	changed func(pods []types.UID)
	wg      sync.WaitGroup

	mu      sync.Mutex
	watches map[sourceKey]*watched
}

type sourceKey struct {
	resource        *api.Resource
	namespace, name string
}

type watched struct {
	cancel context.CancelFunc
	synced chan struct{}
	once   sync.Once
	pods   map[types.UID]bool

	mu     sync.Mutex
	object api.Object
}

func newSources(ctx context.Context, c client.Interface, changed func([]types.UID)) *sources {
	return &sources{ctx: ctx, client: c, changed: changed, watches: map[sourceKey]*watched{}}
}

func (s *sources) wait() { s.wg.Wait() }

// podSources reads on behalf of one pod.
type podSources struct {
	*sources
	uid types.UID
}

func (s *sources) forPod(uid types.UID) podSources { return podSources{s, uid} }

// ConfigMap implements env.Sources.
func (s podSources) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	obj, err := s.get(ctx, s.uid, client.For[*corev1.ConfigMap](s.client).Kind(), namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.ConfigMap), nil
}

// Secret implements env.Sources.
func (s podSources) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	obj, err := s.get(ctx, s.uid, client.For[*corev1.Secret](s.client).Kind(), namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Secret), nil
}

// ConfigMap reads for a pod.
func (s *sources) ConfigMap(ctx context.Context, uid types.UID, namespace, name string) (*corev1.ConfigMap, error) {
	return s.forPod(uid).ConfigMap(ctx, namespace, name)
}

// Secret reads for a pod.
func (s *sources) Secret(ctx context.Context, uid types.UID, namespace, name string) (*corev1.Secret, error) {
	return s.forPod(uid).Secret(ctx, namespace, name)
}

func (s *sources) get(ctx context.Context, uid types.UID, r *api.Resource, namespace, name string) (api.Object, error) {
	w := s.watch(uid, sourceKey{r, namespace, name})
	select {
	case <-w.synced:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	w.mu.Lock()
	object := w.object
	w.mu.Unlock()
	if object == nil {
		// Not there when the watch last told; it may have come just now.
		fresh, err := s.client.Get(ctx, r, namespace, name)
		if apierrors.IsNotFound(err) {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.Singular}, name)
		}
		return fresh, err
	}
	return object, nil
}

func (s *sources) watch(uid types.UID, key sourceKey) *watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watches[key]
	if w != nil {
		w.pods[uid] = true
		return w
	}
	ctx, cancel := context.WithCancel(s.ctx)
	w = &watched{cancel: cancel, synced: make(chan struct{}), pods: map[types.UID]bool{uid: true}}
	s.watches[key] = w
	scope := client.Scope{Resource: key.resource, Namespace: key.namespace, Fields: fields.OneTermEqualSelector("metadata.name", key.name)}
	s.wg.Go(func() {
		defer w.once.Do(func() { close(w.synced) })
		_ = s.client.Subscribe(ctx, func(e client.Event) { s.take(w, e) }, scope) // without a watch, reads go to the API
	})
	return w
}

func (s *sources) take(w *watched, e client.Event) {
	if e.Synced() {
		w.once.Do(func() { close(w.synced) })
		return
	}
	w.mu.Lock()
	w.object = e.New
	w.mu.Unlock()
	select {
	case <-w.synced:
	default:
		return
	}
	s.mu.Lock()
	pods := make([]types.UID, 0, len(w.pods))
	for uid := range w.pods {
		pods = append(pods, uid)
	}
	s.mu.Unlock()
	s.changed(pods)
}

// release ends a pod's interest in everything.
func (s *sources) release(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.watches {
		if delete(w.pods, uid); len(w.pods) == 0 {
			w.cancel()
			delete(s.watches, key)
		}
	}
}
