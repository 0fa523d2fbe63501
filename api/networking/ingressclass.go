package networking

import (
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func ingressClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IngressClass"),
		Plural:           "ingressclasses",
		Singular:         "ingressclass",
		New:              func() api.Object { return new(networkingv1.IngressClass) },
		NewList:          func() runtime.Object { return new(networkingv1.IngressClassList) },
		HasGeneration:    true,
		Default: func(obj api.Object) {
			if p := obj.(*networkingv1.IngressClass).Spec.Parameters; p != nil {
				rules.SetDefault(&p.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
			}
		},
		Validate: func(obj api.Object) field.ErrorList {
			return validateIngressClass(&obj.(*networkingv1.IngressClass).Spec)
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			spec := &obj.(*networkingv1.IngressClass).Spec
			errs := validateIngressClassParameters(spec.Parameters, field.NewPath("spec", "parameters"))
			return append(errs, validation.ValidateImmutableField(spec.Controller, old.(*networkingv1.IngressClass).Spec.Controller, field.NewPath("spec", "controller"))...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Controller", "Controller that is responsible for handling this class"),
			api.Text("Parameters", "A reference to a resource with additional parameters"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			class := obj.(*networkingv1.IngressClass)
			parameters := "<none>"
			if p := class.Spec.Parameters; p != nil {
				parameters = p.Kind
				if group := rules.Value(p.APIGroup); group != "" {
					parameters += "." + group
				}
				parameters += "/" + p.Name
			}
			return []any{class.Name, class.Spec.Controller, parameters, api.Age(class.CreationTimestamp, now)}
		},
	}
}
