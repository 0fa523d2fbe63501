// Package builtin lists every kind that the server offers out of the box.
package builtin

import (
	"proa/api"
	"proa/api/admissionregistration"
	"proa/api/apiserverinternal"
	"proa/api/apps"
	"proa/api/authentication"
	"proa/api/authorization"
	"proa/api/autoscaling"
	"proa/api/batch"
	"proa/api/certificates"
	"proa/api/coordination"
	"proa/api/core"
	"proa/api/discovery"
	"proa/api/flowcontrol"
	"proa/api/networking"
	"proa/api/node"
	"proa/api/policy"
	"proa/api/rbac"
	"proa/api/scheduling"
	"proa/api/storage"
)

// Table returns the table of all built-in resources.
func Table() *api.Table {
	return api.NewTable(
		core.Resources(),
		admissionregistration.Resources(),
		apiserverinternal.Resources(),
		apps.Resources(),
		authentication.Resources(),
		authorization.Resources(),
		autoscaling.Resources(),
		batch.Resources(),
		certificates.Resources(),
		coordination.Resources(),
		discovery.Resources(),
		flowcontrol.Resources(),
		networking.Resources(),
		node.Resources(),
		policy.Resources(),
		rbac.Resources(),
		scheduling.Resources(),
		storage.Resources(),
	)
}
