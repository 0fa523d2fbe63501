// Package rbac holds the kinds of the API group rbac.authorization.k8s.io: roles and their bindings. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package rbac

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		clusterRoleBindings(),
		clusterRoles(),
		roleBindings(),
		roles(),
	}
}
