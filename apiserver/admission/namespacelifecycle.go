package admission

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa/client"
)

// NamespaceLifecycle lets nothing be made in namespaces that do not exist or are going away, and keeps the namespaces that
// the cluster needs.
type NamespaceLifecycle struct {
	Pass
	namespaces client.TypedLister[*corev1.Namespace]
}

// NewNamespaceLifecycle returns the plugin.
func NewNamespaceLifecycle(c client.Interface) *NamespaceLifecycle {
	return &NamespaceLifecycle{namespaces: client.For[*corev1.Namespace](c).Lister(context.Background())}
}

// Name of the plugin.
func (*NamespaceLifecycle) Name() string { return "NamespaceLifecycle" }

// Admit refuses what does not fit the namespace's state.
func (p *NamespaceLifecycle) Admit(_ context.Context, a *Attributes) error {
	if a.Resource.Key() == "namespaces" {
		switch {
		case a.Operation != Delete:
		case a.Name == metav1.NamespaceDefault, a.Name == metav1.NamespaceSystem, a.Name == metav1.NamespacePublic:
			return forbidText(a, "this namespace may not be deleted")
		}
		return nil
	}
	if a.Namespace == "" || !a.Resource.Namespaced || a.Operation == Delete || a.Operation == Connect {
		return nil
	}
	// A review is an answer about a namespace, not something in it.
	if a.Resource.Key() == "localsubjectaccessreviews.authorization.k8s.io" {
		return nil
	}
	namespace, ok := p.namespaces.Get("", a.Namespace)
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, a.Namespace)
	}
	if a.Operation != Create || namespace.Status.Phase != corev1.NamespaceTerminating && namespace.DeletionTimestamp == nil {
		return nil
	}
	err := forbidText(a, fmt.Sprintf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
