package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func validatingAdmissionPolicyBindings() *api.Resource {
	return &api.Resource{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
		Plural:           "validatingadmissionpolicybindings",
		Singular:         "validatingadmissionpolicybinding",
		Categories:       []string{"api-extensions"},
		New:              func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) },
		NewList:          func() runtime.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBindingList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) }, func() api.Object { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicyBinding) },
				func() runtime.Object { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicyBindingList) }),
			api.Twin("v1alpha1", func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyBinding) }, func() api.Object { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicyBinding) },
				func() runtime.Object { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicyBindingList) }),
		},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
		Default: func(obj api.Object) {
			defaultMatch(obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec.MatchResources)
		},
		Validate: func(obj api.Object) field.ErrorList {
			spec, at := &obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding).Spec, field.NewPath("spec")
			errs := validateBindingParts(spec.PolicyName, spec.ParamRef, spec.MatchResources, at)
			return append(errs, validateActions(spec.ValidationActions, at.Child("validationActions"))...)
		},

		Columns: []api.Column{
			api.NameColumn(),
			api.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
			api.Text("ParamRef", "ParamRef indicates the param resource which sets the configration param"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			b := obj.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
			return []any{b.Name, b.Spec.PolicyName, paramRefCell(b.Spec.ParamRef), api.Age(b.CreationTimestamp, now)}
		},
	}
}
