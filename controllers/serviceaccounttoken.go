package controllers

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
	"proa/internal/queue"
)

// serviceAccountTokens fills the Secrets of type kubernetes.io/service-account-token that users make, and removes them
// with their account.
type serviceAccountTokens struct {
	Deps
	queue    *queue.Queue[string]
	secrets  client.TypedLister[*corev1.Secret]
	accounts client.TypedLister[*corev1.ServiceAccount]
}

func newServiceAccountTokens(d Deps) Controller {
	return &serviceAccountTokens{Deps: d, queue: queue.New[string]()}
}

func (c *serviceAccountTokens) Run(ctx context.Context) error {
	c.secrets = client.For[*corev1.Secret](c.Client).Lister(ctx)
	c.accounts = client.For[*corev1.ServiceAccount](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		switch obj := e.Object().(type) {
		case *corev1.Secret:
			if e.New != nil && obj.Type == corev1.SecretTypeServiceAccountToken {
				c.queue.Add(obj.Namespace + "/" + obj.Name)
			}
		case *corev1.ServiceAccount:
			if e.Old != nil && e.New != nil {
				return // what a token says of its account never changes
			}
			for secret := range c.secrets.All(obj.Namespace) {
				if secret.Type == corev1.SecretTypeServiceAccountToken && secret.Annotations[corev1.ServiceAccountNameKey] == obj.Name {
					c.queue.Add(secret.Namespace + "/" + secret.Name)
				}
			}
		}
	}, client.For[*corev1.Secret](c.Client).Scope(), client.For[*corev1.ServiceAccount](c.Client).Scope())
}

func (c *serviceAccountTokens) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	secret, ok := c.secrets.Get(namespace, name)
	if !ok || secret.DeletionTimestamp != nil || secret.Type != corev1.SecretTypeServiceAccountToken {
		return 0, nil
	}
	account, ok := c.accounts.Get(namespace, secret.Annotations[corev1.ServiceAccountNameKey])
	if uid := secret.Annotations[corev1.ServiceAccountUIDKey]; !ok || uid != "" && uid != string(account.UID) {
		err := client.For[*corev1.Secret](c.Client).Delete(ctx, namespace, name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
		})
		return 0, ignoreMissing(err)
	}
	next := secret.DeepCopy()
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	if len(next.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := c.Config.IssueToken(account, name)
		if err != nil {
			return 0, err
		}
		next.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	next.Data[corev1.ServiceAccountRootCAKey] = []byte(c.Config.RootCA)
	next.Data[corev1.ServiceAccountNamespaceKey] = []byte(namespace)
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	same := secret.Annotations[corev1.ServiceAccountUIDKey] != ""
	for k, v := range next.Data {
		same = same && bytes.Equal(v, secret.Data[k])
	}
	if same {
		return 0, nil
	}
	_, err := client.For[*corev1.Secret](c.Client).Update(ctx, next)
	return 0, ignoreMissing(err)
}
