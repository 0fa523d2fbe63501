package builtin

import (
	"testing"

	"proa/api"
)

func TestScheme(t *testing.T) {
	s := api.NewScheme(Table())
	for r := range Table().All() {
		if !s.Recognizes(r.GroupVersionKind) {
			t.Errorf("%s is not in the scheme", r.GroupVersionKind)
		}
	}
}
