// Package policy holds the kinds of the API group policy: pod disruption budgets. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package policy

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		podDisruptionBudgets(),
	}
}
