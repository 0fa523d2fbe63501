// Package authorization holds the kinds of the API group authorization.k8s.io, which the server answers without storing anything. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package authorization

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		localSubjectAccessReviews(),
		selfSubjectAccessReviews(),
		selfSubjectRulesReviews(),
		subjectAccessReviews(),
	}
}
