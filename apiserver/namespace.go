package apiserver

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/core"
)

// prepareNamespace makes sure that a new namespace is emptied before it goes.
func prepareNamespace(ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	if ns.Name != "" {
		ns.Labels[corev1.LabelMetadataName] = ns.Name
	}
}

// specFinalizers are what keeps a namespace besides the finalizers of its metadata.
func specFinalizers(obj api.Object) []corev1.FinalizerName {
	if ns, ok := obj.(*corev1.Namespace); ok {
		return ns.Spec.Finalizers
	}
	return nil
}

// finalizeNamespace are the rules of the finalize subresource: only spec.finalizers change.
func finalizeNamespace() (prepare func(obj, old api.Object), validate func(obj, old api.Object) field.ErrorList) {
	prepare = func(obj, old api.Object) {
		ns, before := obj.(*corev1.Namespace), old.(*corev1.Namespace)
		ns.Status = before.Status
	}
	return prepare, func(obj, _ api.Object) field.ErrorList {
		return core.ValidateNamespaceFinalize(obj.(*corev1.Namespace))
	}
}
