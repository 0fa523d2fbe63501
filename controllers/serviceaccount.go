package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
	"proa/internal/queue"
)

// serviceAccounts gives every namespace the account "default".
type serviceAccounts struct {
	Deps
	queue *queue.Queue[string] // namespaces
}

func newServiceAccounts(d Deps) Controller {
	return &serviceAccounts{Deps: d, queue: queue.New[string]()}
}

func (c *serviceAccounts) Run(ctx context.Context) error {
	return loop(ctx, c.Deps, c.queue, 2, c.sync, func(e client.Event) {
		switch obj := e.Object().(type) {
		case *corev1.Namespace:
			if e.New != nil {
				c.queue.Add(obj.Name)
			}
		case *corev1.ServiceAccount:
			if e.New == nil && obj.Name == "default" {
				c.queue.Add(obj.Namespace)
			}
		}
	}, client.For[*corev1.Namespace](c.Client).Scope(), client.For[*corev1.ServiceAccount](c.Client).Scope())
}

func (c *serviceAccounts) sync(ctx context.Context, namespace string) (time.Duration, error) {
	ns, ok := client.For[*corev1.Namespace](c.Client).Lister(ctx).Get("", namespace)
	if !ok || ns.Status.Phase == corev1.NamespaceTerminating {
		return 0, nil
	}
	accounts := client.For[*corev1.ServiceAccount](c.Client)
	if _, ok := accounts.Lister(ctx).Get(namespace, "default"); ok {
		return 0, nil
	}
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}})
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return 0, nil
	}
	return 0, err
}
