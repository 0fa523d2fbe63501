// Package batch holds the kinds of the API group batch: jobs and cron jobs. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package batch

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		cronJobs(),
		jobs(),
	}
}
