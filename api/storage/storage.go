// Package storage holds the kinds of the API group storage.k8s.io: storage classes, volume attachments and what CSI drivers publish. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package storage

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		csiDrivers(),
		csiNodes(),
		csiStorageCapacities(),
		storageClasses(),
		volumeAttachments(),
		volumeAttributesClasses(),
	}
}
