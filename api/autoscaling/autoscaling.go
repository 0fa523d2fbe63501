// Package autoscaling holds the kinds of the API group autoscaling: horizontal pod autoscalers, in versions v2 and v1. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package autoscaling

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		horizontalPodAutoscalers(),
	}
}
