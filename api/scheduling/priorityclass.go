package scheduling

import (
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func priorityClasses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
		Plural:           "priorityclasses",
		Singular:         "priorityclass",
		ShortNames:       []string{"pc"},
		New:              func() api.Object { return new(schedulingv1.PriorityClass) },
		NewList:          func() runtime.Object { return new(schedulingv1.PriorityClassList) },
		HasGeneration:    true,
	}
}
