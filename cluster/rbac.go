package cluster

import (
	"context"
	"runtime"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
	"proa/apiserver/authz"
	"proa/client"
)

// reconcileRole makes a default role or binding, or gives it back what it lost.
func reconcileRole(ctx context.Context, c client.Interface, wanted api.Object) error {
	r := c.Table().ForKind(c.Table().KindOf(wanted).GroupKind())
	present, err := c.Get(ctx, r, wanted.GetNamespace(), wanted.GetName())
	if errors.IsNotFound(err) {
		_, err = c.Create(ctx, r, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	update, replace := authz.Reconcile(present, wanted)
	switch {
	case replace:
		if err := c.Delete(ctx, r, wanted.GetNamespace(), wanted.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
		_, err = c.Create(ctx, r, wanted, metav1.CreateOptions{})
	case update != nil:
		_, err = c.Update(ctx, r, "", update, metav1.UpdateOptions{})
	}
	return err
}

func goVersion() string { return runtime.Version() }

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
