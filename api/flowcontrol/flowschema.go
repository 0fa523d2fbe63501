package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func flowSchemas() *api.Resource {
	return &api.Resource{
		GroupVersionKind: flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"),
		Plural:           "flowschemas",
		Singular:         "flowschema",
		New:              func() api.Object { return new(flowcontrolv1.FlowSchema) },
		NewList:          func() runtime.Object { return new(flowcontrolv1.FlowSchemaList) },
		Versions: []api.Version{
			api.Twin("v1beta3", func() api.Object { return new(flowcontrolv1.FlowSchema) }, func() api.Object { return new(flowcontrolv1beta3.FlowSchema) },
				func() runtime.Object { return new(flowcontrolv1beta3.FlowSchemaList) }),
		},
		Subresources:                []api.Subresource{api.Status()},
		HasGeneration:               true,
		DisallowUnconditionalUpdate: true,
	}
}
