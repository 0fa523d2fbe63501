package admissionregistration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func mutatingAdmissionPolicies() *api.Resource {
	return &api.Resource{
		GroupVersionKind: admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"),
		Plural:           "mutatingadmissionpolicies",
		Singular:         "mutatingadmissionpolicy",
		Categories:       []string{"api-extensions"},
		New:              func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
		NewList:          func() runtime.Object { return new(admissionregistrationv1.MutatingAdmissionPolicyList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicy) }, func() api.Object { return new(admissionregistrationv1beta1.MutatingAdmissionPolicy) },
				func() runtime.Object { return new(admissionregistrationv1beta1.MutatingAdmissionPolicyList) }),
			api.Twin("v1alpha1", func() api.Object { return new(admissionregistrationv1.MutatingAdmissionPolicy) }, func() api.Object { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicy) },
				func() runtime.Object { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicyList) }),
		},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
