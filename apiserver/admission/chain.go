package admission

import (
	"errors"
	"log/slog"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/client"
)

// Default returns the built-in plugins in upstream's order. c acts with the server's own rights. Plugins in extra (webhooks,
// policies) come before the last two, which see the final object: the check of RBAC rights and the quota.
func Default(c client.Interface, log *slog.Logger, extra ...Plugin) Chain {
	return slices.Concat(Chain{
		NewNamespaceLifecycle(c),
		NewLimitRanger(c),
		NewServiceAccount(c),
		NewNodeRestriction(c),
		TaintNodesByCondition{},
		NewPodSecurity(c, log),
		NewPriority(c),
		DefaultTolerationSeconds{},
		NewDefaultStorageClass(c),
		StorageObjectInUseProtection{},
		NewPersistentVolumeClaimResize(c),
		NewRuntimeClass(c),
		NewCertificateApproval(c),
		NewCertificateSigning(c),
		CertificateSubjectRestriction{},
		NewDefaultIngressClass(c),
	}, extra, Chain{
		NewRBACEscalation(c),
		NewResourceQuota(c),
	})
}

// on reports whether a is an operation on a resource ("pods", "deployments.apps") itself or on one subresource.
func on(a *Attributes, key, subresource string, operations ...Operation) bool {
	return a.Subresource == subresource && slices.Contains(operations, a.Operation) && a.Resource.Key() == key
}

// nameOf the object of a request, for messages: the prefix when the name is still to be generated.
func nameOf(a *Attributes) string {
	if a.Name != "" || a.Object == nil {
		return a.Name
	}
	if a.Object.GetName() != "" {
		return a.Object.GetName()
	}
	return a.Object.GetGenerateName()
}

// forbid refuses a request for a reason.
func forbid(a *Attributes, reason error) *apierrors.StatusError {
	return apierrors.NewForbidden(a.Resource.GroupResource(), nameOf(a), reason)
}

func forbidText(a *Attributes, reason string) *apierrors.StatusError {
	return forbid(a, errors.New(reason))
}
