package policy

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func podDisruptionBudgets() *api.Resource {
	return &api.Resource{
		GroupVersionKind:            policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		Plural:                      "poddisruptionbudgets",
		Singular:                    "poddisruptionbudget",
		ShortNames:                  []string{"pdb"},
		Namespaced:                  true,
		New:                         func() api.Object { return new(policyv1.PodDisruptionBudget) },
		NewList:                     func() runtime.Object { return new(policyv1.PodDisruptionBudgetList) },
		Subresources:                []api.Subresource{api.Status()},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
		Validate: func(obj api.Object) field.ErrorList {
			return validatePodDisruptionBudget(&obj.(*policyv1.PodDisruptionBudget).Spec)
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			s, path := &obj.(*policyv1.PodDisruptionBudget).Status, field.NewPath("status")
			errs := metavalidation.ValidateConditions(s.Conditions, path.Child("conditions"))
			errs = append(errs, rules.NonNegative(path.Child("disruptionsAllowed"), &s.DisruptionsAllowed)...)
			errs = append(errs, rules.NonNegative(path.Child("currentHealthy"), &s.CurrentHealthy)...)
			errs = append(errs, rules.NonNegative(path.Child("desiredHealthy"), &s.DesiredHealthy)...)
			return append(errs, rules.NonNegative(path.Child("expectedPods"), &s.ExpectedPods)...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Min Available", "The minimum number of pods that must be available."),
			api.Text("Max Unavailable", "The maximum number of pods that may be unavailable."),
			api.Number("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			pdb := obj.(*policyv1.PodDisruptionBudget)
			return []any{pdb.Name, countCell(pdb.Spec.MinAvailable), countCell(pdb.Spec.MaxUnavailable),
				int64(pdb.Status.DisruptionsAllowed), api.Age(pdb.CreationTimestamp, now)}
		},
	}
}

func countCell(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

func validatePodDisruptionBudget(spec *policyv1.PodDisruptionBudgetSpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, *spec, "minAvailable and maxUnavailable cannot be both set"))
	}
	for _, f := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", spec.MinAvailable}, {"maxUnavailable", spec.MaxUnavailable}} {
		errs = append(errs, rules.IntOrPercent(path.Child(f.name), f.value)...)
		errs = append(errs, rules.AtMost100Percent(path.Child(f.name), f.value)...)
	}
	if policy := spec.UnhealthyPodEvictionPolicy; policy != nil && *policy != policyv1.AlwaysAllow && *policy != policyv1.IfHealthyBudget {
		errs = append(errs, field.NotSupported(path.Child("unhealthyPodEvictionPolicy"), *policy,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
}
