// Package discovery holds the kinds of the API group discovery.k8s.io: endpoint slices. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package discovery

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		endpointSlices(),
	}
}
