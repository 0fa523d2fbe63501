package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func validatingAdmissionPolicies() *api.Resource {
	return &api.Resource{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		Plural:           "validatingadmissionpolicies",
		Singular:         "validatingadmissionpolicy",
		Categories:       []string{"api-extensions"},
		New:              func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicy) },
		NewList:          func() runtime.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicyList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicy) }, func() api.Object { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicy) },
				func() runtime.Object { return new(admissionregistrationv1beta1.ValidatingAdmissionPolicyList) }),
			api.Twin("v1alpha1", func() api.Object { return new(admissionregistrationv1.ValidatingAdmissionPolicy) }, func() api.Object { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicy) },
				func() runtime.Object { return new(admissionregistrationv1alpha1.ValidatingAdmissionPolicyList) }),
		},
		Subresources:                []api.Subresource{api.Status()},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
