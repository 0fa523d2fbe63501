package admissionregistration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		Default: func(obj api.Object) {
			spec := &obj.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec
			rules.SetDefault(&spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatch(spec.MatchConstraints)
		},
		Validate: func(obj api.Object) field.ErrorList {
			return validateMutatingPolicy(&obj.(*admissionregistrationv1.MutatingAdmissionPolicy).Spec, field.NewPath("spec"))
		},

		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Mutations", "Mutations indicates the number of mutation rules defined in this configuration"),
			api.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			p := obj.(*admissionregistrationv1.MutatingAdmissionPolicy)
			return []any{p.Name, int64(len(p.Spec.Mutations)), paramKindCell(p.Spec.ParamKind), api.Age(p.CreationTimestamp, now)}
		},
	}
}
