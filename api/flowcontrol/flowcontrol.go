// Package flowcontrol holds the kinds of the API group flowcontrol.apiserver.k8s.io: flow schemas and priority levels. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package flowcontrol

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		flowSchemas(),
		priorityLevelConfigurations(),
	}
}
