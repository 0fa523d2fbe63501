// Package networking holds the kinds of the API group networking.k8s.io: ingresses and their classes, network policies, and the addresses of services. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package networking

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		ingressClasses(),
		ingresses(),
		ipAddresses(),
		networkPolicies(),
		serviceCIDRs(),
	}
}
