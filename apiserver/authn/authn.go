// Package authn finds out who sends a request: by client certificate, by bound service account token or by a bootstrap
// token. It also issues service account tokens.
package authn

import (
	"net/http"

	"proa/apiserver/request"
)

// Authenticator recognises one kind of credential. It returns a nil user when the request carries none of its kind, and
// an error when it carries a bad one.
type Authenticator interface {
	Authenticate(r *http.Request) (*request.User, error)
}
