// Package builtin lists every kind that the server offers out of the box.
package builtin

import (
	"proa/api"
	"proa/api/core"
)

// Table returns the table of all built-in resources.
func Table() *api.Table {
	return api.NewTable(
		core.Resources(),
	)
}
