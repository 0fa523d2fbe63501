package authn

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"

	"proa/apiserver/request"
)

// TokenAuthenticator recognises bearer tokens. Token returns a nil user for a token that is not of its kind. audiences
// are those that the asker accepts, empty for the API server's own; the ones that the token is good for are returned.
type TokenAuthenticator interface {
	Token(ctx context.Context, token string, audiences []string) (*request.User, []string, error)
}

// websocketBearer is how browsers, which cannot set headers on a WebSocket, carry the token as a subprotocol.
const websocketBearer = "base64url.bearer.authorization.k8s.io."

// bearer returns the token of a request, or "".
func bearer(r *http.Request) string {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(strings.TrimSpace(header), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimSpace(token)
	}
	for _, value := range r.Header.Values("Sec-WebSocket-Protocol") {
		for protocol := range strings.SplitSeq(value, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), websocketBearer)
			if !ok {
				continue
			}
			if token, err := base64.RawURLEncoding.DecodeString(encoded); err == nil {
				return string(token)
			}
		}
	}
	return ""
}

// fromRequest authenticates the bearer token of r for the API server itself.
func fromRequest(r *http.Request, t TokenAuthenticator) (*request.User, error) {
	token := bearer(r)
	if token == "" {
		return nil, nil
	}
	user, _, err := t.Token(r.Context(), token, nil)
	return user, err
}

// shared returns the wanted audiences that are also offered; with none wanted, all offered.
func shared(offered, wanted []string) []string {
	if len(wanted) == 0 {
		return offered
	}
	var out []string
	for _, a := range wanted {
		if slices.Contains(offered, a) {
			out = append(out, a)
		}
	}
	return out
}
