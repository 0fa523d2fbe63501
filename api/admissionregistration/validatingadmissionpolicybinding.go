package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

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
	}
}
