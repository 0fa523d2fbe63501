package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func priorityLevelConfigurations() *api.Resource {
	return &api.Resource{
		GroupVersionKind: flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"),
		Plural:           "prioritylevelconfigurations",
		Singular:         "prioritylevelconfiguration",
		New:              func() api.Object { return new(flowcontrolv1.PriorityLevelConfiguration) },
		NewList:          func() runtime.Object { return new(flowcontrolv1.PriorityLevelConfigurationList) },
		Versions: []api.Version{
			api.Twin("v1beta3", func() api.Object { return new(flowcontrolv1.PriorityLevelConfiguration) }, func() api.Object { return new(flowcontrolv1beta3.PriorityLevelConfiguration) },
				func() runtime.Object { return new(flowcontrolv1beta3.PriorityLevelConfigurationList) }),
		},
		Subresources:                []api.Subresource{api.Status()},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
