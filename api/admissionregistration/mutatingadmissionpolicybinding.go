package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

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
	}
}
