package core

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func namespaces() *api.Resource {
	return &api.Resource{
		GroupVersionKind:     kind("Namespace"),
		Plural:               "namespaces",
		Singular:             "namespace",
		ShortNames:           []string{"ns"},
		New:                  func() api.Object { return new(corev1.Namespace) },
		NewList:              func() runtime.Object { return new(corev1.NamespaceList) },
		Verbs:                withoutDeleteCollection(),
		ValidateName:         dnsLabel,
		Subresources:         []api.Subresource{{Name: "finalize", Verbs: []string{"update"}}, api.Status()},
		Default:              func(obj api.Object) { labelNamespace(obj.(*corev1.Namespace)) },
		PrepareCreate:        prepareNamespace,
		PrepareUpdate:        prepareNamespaceUpdate,
		Validate:             validateNamespace,
		ValidateUpdate:       func(obj, old api.Object) field.ErrorList { return validateNamespace(obj) },
		ValidateStatusUpdate: validateNamespaceStatus,
		FieldNames:           []string{"status.phase"},
		FieldValue:           func(obj api.Object, _ string) string { return string(obj.(*corev1.Namespace).Status.Phase) },
		Columns:              []api.Column{api.NameColumn(), api.Text("Status", "The status of the namespace"), api.AgeColumn()},
		Cells: func(obj api.Object, now time.Time) []any {
			ns := obj.(*corev1.Namespace)
			return []any{ns.Name, string(ns.Status.Phase), api.Age(ns.CreationTimestamp, now)}
		},
	}
}

// labelNamespace makes every namespace selectable by its name.
func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespace(obj api.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	labelNamespace(ns)
	// The finalizer makes deletion wait until the namespace is empty.
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// prepareNamespaceUpdate keeps the finalizers, which change through the finalize subresource only.
func prepareNamespaceUpdate(obj, old api.Object) {
	ns, before := obj.(*corev1.Namespace), old.(*corev1.Namespace)
	ns.Spec.Finalizers = before.Spec.Finalizers
	ns.Status = before.Status
}

func validateNamespace(obj api.Object) field.ErrorList {
	ns := obj.(*corev1.Namespace)
	var p problems
	for i, f := range ns.Spec.Finalizers {
		p.finalizer(string(f), field.NewPath("spec", "finalizers").Index(i))
	}
	return p.list
}

func (p *problems) finalizer(name string, path *field.Path) {
	if msgs := utilvalidation.IsQualifiedName(name); len(msgs) > 0 {
		p.messages(path, name, msgs)
		return
	}
	if name != string(corev1.FinalizerKubernetes) && !slices.Contains([]byte(name), '/') {
		p.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")
	}
}

// ValidateNamespaceFinalize returns what is wrong with an update through the finalize subresource.
func ValidateNamespaceFinalize(ns *corev1.Namespace) field.ErrorList { return validateNamespace(ns) }

func validateNamespaceStatus(obj, _ api.Object) field.ErrorList {
	ns := obj.(*corev1.Namespace)
	var p problems
	path := field.NewPath("status", "Phase")
	switch terminating := ns.Status.Phase == corev1.NamespaceTerminating; {
	case ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceActive:
		p.invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")
	case ns.DeletionTimestamp != nil && !terminating:
		p.invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
	}
	return p.list
}
