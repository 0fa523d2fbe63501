// Package apps holds the kinds of the API group apps: deployments, replica sets, stateful sets, daemon sets and controller revisions. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package apps

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		controllerRevisions(),
		daemonSets(),
		deployments(),
		replicaSets(),
		statefulSets(),
	}
}
