package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa/api"
)

func componentStatuses() *api.Resource {
	doc := corev1.ComponentCondition{}.SwaggerDoc()
	return &api.Resource{
		GroupVersionKind: kind("ComponentStatus"),
		Plural:           "componentstatuses",
		Singular:         "componentstatus",
		ShortNames:       []string{"cs"},
		New:              func() api.Object { return new(corev1.ComponentStatus) },
		NewList:          func() runtime.Object { return new(corev1.ComponentStatusList) },
		Verbs:            []string{"get", "list"},
		Virtual:          true,
		Columns: []api.Column{
			api.NameColumn(), api.Text("Status", "Status of the component conditions"),
			api.Text("Message", "Message of the component conditions"), api.Text("Error", doc["error"]),
		},
		Cells: componentStatusCells,
	}
}

func componentStatusCells(obj api.Object, _ time.Time) []any {
	cs := obj.(*corev1.ComponentStatus)
	status, message, failure := "Unknown", "", ""
	for _, c := range cs.Conditions {
		if c.Type != corev1.ComponentHealthy {
			continue
		}
		status = "Unhealthy"
		if c.Status == corev1.ConditionTrue {
			status = "Healthy"
		}
		message, failure = c.Message, c.Error
	}
	return []any{cs.Name, status, message, failure}
}
