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

func mutatingAdmissionPolicyBindings() *api.Resource {
	return &api.Resource{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"),
		Plural:           "mutatingadmissionpolicybindings",
		Singular:         "mutatingadmissionpolicybinding",
		Categories:       []string{"api-extensions"},
		New:              func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) },
		NewList:          func() runtime.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyBindingList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) }, func() api.Object { return new(admissionregistrationv1beta1.MutatingAdmissionPolicyBinding) },
				func() runtime.Object { return new(admissionregistrationv1beta1.MutatingAdmissionPolicyBindingList) }),
			api.Twin("v1alpha1", func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) }, func() api.Object { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicyBinding) },
				func() runtime.Object { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicyBindingList) }),
		},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
		Default: func(obj api.Object) {
			defaultMatch(obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding).Spec.MatchResources)
		},
		Validate: func(obj api.Object) field.ErrorList {
			spec := &obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding).Spec
			return validateBindingParts(spec.PolicyName, spec.ParamRef, spec.MatchResources, field.NewPath("spec"))
		},

		Columns: []api.Column{
			api.NameColumn(),
			api.Text("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
			api.Text("ParamRef", "ParamRef indicates the param resource which sets the configration param"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			b := obj.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
			return []any{b.Name, b.Spec.PolicyName, paramRefCell(b.Spec.ParamRef), api.Age(b.CreationTimestamp, now)}
		},
	}
}
