package controllers

import (
	"context"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/client"
	"proa/internal/queue"
)

// loop is the skeleton of every controller: events of the scopes go to note, which adds keys to the queue; once the
// first objects are known, workers handle the keys until ctx ends.
func loop[K comparable](ctx context.Context, d Deps, q *queue.Queue[K], workers int, handle queue.Handle[K], note func(client.Event), scopes ...client.Scope) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	synced := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-synced:
			q.Run(ctx, d.Log, workers, handle)
		case <-ctx.Done():
		}
	})
	err := d.Client.Subscribe(ctx, func(e client.Event) {
		if e.Synced() {
			close(synced)
			return
		}
		note(e)
	}, scopes...)
	cancel()
	wg.Wait()
	return err
}

// splitKey takes "namespace/name" apart; objects without a namespace have a bare name.
func splitKey(key string) (namespace, name string) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", namespace
	}
	return namespace, name
}

// ignoreMissing is err, but nil when the object is gone: then there is nothing left to do for it.
func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
