package policy

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
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
	}
}
