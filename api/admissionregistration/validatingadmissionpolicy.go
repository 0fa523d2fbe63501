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
		Default: func(obj api.Object) {
			spec := &obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec
			rules.SetDefault(&spec.FailurePolicy, admissionregistrationv1.Fail)
			defaultMatch(spec.MatchConstraints)
		},
		Validate: func(obj api.Object) field.ErrorList {
			return validateValidatingPolicy(&obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Spec, field.NewPath("spec"))
		},

		Columns: []api.Column{
			api.NameColumn(),
			api.Number("Validations", "Validations indicates the number of validation rules defined in this configuration"),
			api.Text("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			p := obj.(*admissionregistrationv1.ValidatingAdmissionPolicy)
			return []any{p.Name, int64(len(p.Spec.Validations)), paramKindCell(p.Spec.ParamKind), api.Age(p.CreationTimestamp, now)}
		},
	}
}

func paramKindCell(kind *admissionregistrationv1.ParamKind) string {
	if kind == nil {
		return "<unset>"
	}
	return kind.APIVersion + "/" + kind.Kind
}

func paramRefCell(ref *admissionregistrationv1.ParamRef) string {
	switch {
	case ref == nil:
		return "<unset>"
	case ref.Namespace != "":
		return ref.Namespace + "/" + ref.Name
	case ref.Name != "":
		return "*/" + ref.Name
	}
	return "<unset>"
}
