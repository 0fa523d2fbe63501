// Package certificates holds the kinds of the API group certificates.k8s.io: certificate signing requests and cluster trust bundles. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package certificates

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		certificateSigningRequests(),
		clusterTrustBundles(),
	}
}
