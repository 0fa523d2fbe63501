package controllers

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa/client"
	"proa/internal/queue"
)

// pvFinalizer keeps a volume that is being deleted while it is bound.
const pvFinalizer = "kubernetes.io/pv-protection"

// pvProtection lets deleted volumes go once they are bound to no claim.
type pvProtection struct {
	Deps
	queue   *queue.Queue[string]
	volumes client.TypedLister[*corev1.PersistentVolume]
}

func newPVProtection(d Deps) Controller {
	return &pvProtection{Deps: d, queue: queue.New[string]()}
}

func (c *pvProtection) Run(ctx context.Context) error {
	c.volumes = client.For[*corev1.PersistentVolume](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		if obj := e.Object(); e.New != nil && obj.GetDeletionTimestamp() != nil {
			c.queue.Add(obj.GetName())
		}
	}, client.For[*corev1.PersistentVolume](c.Client).Scope())
}

func (c *pvProtection) sync(ctx context.Context, name string) (time.Duration, error) {
	volume, ok := c.volumes.Get("", name)
	if !ok || volume.DeletionTimestamp == nil || volume.Status.Phase == corev1.VolumeBound || !slices.Contains(volume.Finalizers, pvFinalizer) {
		return 0, nil
	}
	next := volume.DeepCopy()
	next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == pvFinalizer })
	_, err := client.For[*corev1.PersistentVolume](c.Client).Update(ctx, next)
	return 0, ignoreMissing(err)
}
