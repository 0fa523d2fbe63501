package clientfake_test

import (
	"testing"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
	"proa/client/clienttest"
)

func TestContract(t *testing.T) {
	clienttest.Run(t, func(*testing.T) client.Interface { return clientfake.New(builtin.Table()) })
}
