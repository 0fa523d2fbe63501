package apiserver

import (
	"testing"

	"proa/apiserver/request"
	"proa/client"
	"proa/client/clienttest"
)

func TestLocalContract(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Interface {
		return newFixture(t).s.Client(&request.User{Name: "test"}, "test")
	})
}
