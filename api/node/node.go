// Package node holds the kinds of the API group node.k8s.io: runtime classes. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package node

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		runtimeClasses(),
	}
}
