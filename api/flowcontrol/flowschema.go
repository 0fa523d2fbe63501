package flowcontrol

import (
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
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
		Default: func(obj api.Object) {
			if spec := &obj.(*flowcontrolv1.FlowSchema).Spec; spec.MatchingPrecedence == 0 {
				spec.MatchingPrecedence = 1000
			}
		},
		Validate: func(obj api.Object) field.ErrorList { return validateFlowSchema(obj.(*flowcontrolv1.FlowSchema)) },
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("PriorityLevel", rules.Doc(flowcontrolv1.PriorityLevelConfigurationReference{}, "name")),
			api.Number("MatchingPrecedence", rules.Doc(flowcontrolv1.FlowSchemaSpec{}, "matchingPrecedence")),
			api.Text("DistinguisherMethod", rules.Doc(flowcontrolv1.FlowSchemaSpec{}, "distinguisherMethod")),
			api.AgeColumn(),
			api.Text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			fs := obj.(*flowcontrolv1.FlowSchema)
			distinguisher, missing := "<none>", "?"
			if fs.Spec.DistinguisherMethod != nil {
				distinguisher = string(fs.Spec.DistinguisherMethod.Type)
			}
			for _, c := range fs.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			return []any{fs.Name, fs.Spec.PriorityLevelConfiguration.Name, int64(fs.Spec.MatchingPrecedence), distinguisher,
				api.Age(fs.CreationTimestamp, now), missing}
		},
	}
}
