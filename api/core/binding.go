package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func bindings() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Binding"),
		Plural:           "bindings",
		Singular:         "binding",
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Binding) },
		NewList:          func() runtime.Object { return new(corev1.List) },
		Verbs:            []string{"create"},
		Virtual:          true,
		Validate:         func(obj api.Object) field.ErrorList { return ValidateBinding(obj.(*corev1.Binding)) },
	}
}
