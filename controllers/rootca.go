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

// rootCAName is the ConfigMap by which pods know the API server's authority.
const rootCAName = "kube-root-ca.crt"

// rootCA publishes the cluster's authority to every namespace.
type rootCA struct {
	Deps
	queue *queue.Queue[string] // namespaces
}

func newRootCA(d Deps) Controller { return &rootCA{Deps: d, queue: queue.New[string]()} }

func (c *rootCA) Run(ctx context.Context) error {
	return loop(ctx, c.Deps, c.queue, 2, c.sync, func(e client.Event) {
		switch obj := e.Object().(type) {
		case *corev1.Namespace:
			if e.New != nil {
				c.queue.Add(obj.Name)
			}
		case *corev1.ConfigMap:
			if obj.Name == rootCAName {
				c.queue.Add(obj.Namespace)
			}
		}
	}, client.For[*corev1.Namespace](c.Client).Scope(), client.For[*corev1.ConfigMap](c.Client).Scope())
}

func (c *rootCA) sync(ctx context.Context, namespace string) (time.Duration, error) {
	ns, ok := client.For[*corev1.Namespace](c.Client).Lister(ctx).Get("", namespace)
	if !ok || ns.Status.Phase == corev1.NamespaceTerminating || c.Config.RootCA == "" {
		return 0, nil
	}
	maps := client.For[*corev1.ConfigMap](c.Client)
	data := map[string]string{"ca.crt": c.Config.RootCA}
	old, ok := maps.Lister(ctx).Get(namespace, rootCAName)
	if !ok {
		_, err := maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootCAName, Namespace: namespace,
				Annotations: map[string]string{"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
			},
			Data: data,
		})
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		return 0, err
	}
	if len(old.Data) == 1 && old.Data["ca.crt"] == c.Config.RootCA {
		return 0, nil
	}
	next := old.DeepCopy()
	next.Data = data
	_, err := maps.Update(ctx, next)
	return 0, err
}
