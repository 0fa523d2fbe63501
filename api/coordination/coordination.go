// Package coordination holds the kinds of the API group coordination.k8s.io: leases. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package coordination

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		leases(),
	}
}
