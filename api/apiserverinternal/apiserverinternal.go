// Package apiserverinternal holds the kinds of the API group internal.apiserver.k8s.io: storage versions. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package apiserverinternal

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		storageVersions(),
	}
}
