// Package admissionregistration holds the kinds of the API group admissionregistration.k8s.io: admission webhooks and admission policies. Each kind has a file of its own
// with its defaulting, validation, update rules, table columns and selectable fields.
package admissionregistration

import (
	"proa/api"
)

// Resources of the group, in the order of discovery.
func Resources() []*api.Resource {
	return []*api.Resource{
		mutatingAdmissionPolicies(),
		mutatingAdmissionPolicyBindings(),
		mutatingWebhookConfigurations(),
		validatingAdmissionPolicies(),
		validatingAdmissionPolicyBindings(),
		validatingWebhookConfigurations(),
	}
}
