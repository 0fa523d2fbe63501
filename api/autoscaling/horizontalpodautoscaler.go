package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func horizontalPodAutoscalers() *api.Resource {
	return &api.Resource{
		GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
		Plural:           "horizontalpodautoscalers",
		Singular:         "horizontalpodautoscaler",
		ShortNames:       []string{"hpa"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() api.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
		NewList:          func() runtime.Object { return new(autoscalingv2.HorizontalPodAutoscalerList) },
		Versions: []api.Version{
			{
				Name:        "v1",
				New:         func() api.Object { return new(autoscalingv1.HorizontalPodAutoscaler) },
				NewList:     func() runtime.Object { return new(autoscalingv1.HorizontalPodAutoscalerList) },
				ToStorage:   v1ToStorage,
				FromStorage: v1FromStorage,
			},
		},
		Subresources: []api.Subresource{api.Status()},
	}
}
