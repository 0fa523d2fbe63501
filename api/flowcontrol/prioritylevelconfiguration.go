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
		Default:                     defaultPriorityLevel,
		Validate: func(obj api.Object) field.ErrorList {
			return validatePriorityLevel(obj.(*flowcontrolv1.PriorityLevelConfiguration))
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Type", rules.Doc(flowcontrolv1.PriorityLevelConfigurationSpec{}, "type")),
			api.Text("NominalConcurrencyShares", rules.Doc(flowcontrolv1.LimitedPriorityLevelConfiguration{}, "nominalConcurrencyShares")),
			api.Text("Queues", rules.Doc(flowcontrolv1.QueuingConfiguration{}, "queues")),
			api.Text("HandSize", rules.Doc(flowcontrolv1.QueuingConfiguration{}, "handSize")),
			api.Text("QueueLengthLimit", rules.Doc(flowcontrolv1.QueuingConfiguration{}, "queueLengthLimit")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			pl := obj.(*flowcontrolv1.PriorityLevelConfiguration)
			var shares, queues, hand, length any = "<none>", "<none>", "<none>", "<none>"
			if l := pl.Spec.Limited; l != nil {
				shares = rules.Value(l.NominalConcurrencyShares)
				if q := l.LimitResponse.Queuing; q != nil {
					queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
				}
			}
			return []any{pl.Name, string(pl.Spec.Type), shares, queues, hand, length, api.Age(pl.CreationTimestamp, now)}
		},
	}
}

func defaultPriorityLevel(obj api.Object) {
	spec := &obj.(*flowcontrolv1.PriorityLevelConfiguration).Spec
	if exempt := spec.Exempt; exempt != nil {
		rules.SetDefault(&exempt.NominalConcurrencyShares, 0)
		rules.SetDefault(&exempt.LendablePercent, 0)
	}
	limited := spec.Limited
	if limited == nil {
		return
	}
	rules.SetDefault(&limited.NominalConcurrencyShares, 30)
	rules.SetDefault(&limited.LendablePercent, 0)
	if q := limited.LimitResponse.Queuing; q != nil {
		if q.HandSize == 0 {
			q.HandSize = 8
		}
		if q.Queues == 0 {
			q.Queues = 64
		}
		if q.QueueLengthLimit == 0 {
			q.QueueLengthLimit = 50
		}
	}
}
