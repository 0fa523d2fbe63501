package request

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"proa/client"
)

// Post is a create that has its own rules: on a subresource with its own kind (pods/eviction, serviceaccounts/token) or on
// a virtual resource (reviews). It has been authorized, decoded, defaulted and admitted.
type Post struct {
	// Client acts with the server's own rights.
	Client          client.Interface
	User            *User
	Namespace, Name string
	Body            runtime.Object
	DryRun          bool
}

// Poster carries out a Post and returns the answer, or an API status error.
type Poster func(ctx context.Context, p Post) (runtime.Object, error)

// Connector serves a connecting subresource (pods/exec, services/proxy, nodes/proxy, pods/log, ...). The request has been
// authorized and admitted. Errors before the connection stands are returned and become a Status.
type Connector func(w http.ResponseWriter, r *http.Request, info *Info) error
