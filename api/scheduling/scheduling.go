// Package scheduling holds the kinds of the API group scheduling.k8s.io: priority classes. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package scheduling

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		priorityClasses(),
	}
}
