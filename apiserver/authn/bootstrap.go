package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/apiserver/request"
	"proa/client"
)

const (
	bootstrapUser  = "system:bootstrap:"
	bootstrapGroup = "system:bootstrappers"
	bootstrapType  = corev1.SecretType("bootstrap.kubernetes.io/token")
)

var (
	bootstrapToken      = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapExtraGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// BootstrapToken recognises the tokens with which nodes join ("abcdef.0123456789abcdef"): those of Secrets of type
// bootstrap.kubernetes.io/token in kube-system. It is safe for concurrent use.
type BootstrapToken struct {
	secrets func() client.TypedLister[*corev1.Secret]
}

// NewBootstrapToken returns the authenticator; the client is asked for at the first token.
func NewBootstrapToken(c func() client.Interface) *BootstrapToken {
	return &BootstrapToken{secrets: sync.OnceValue(func() client.TypedLister[*corev1.Secret] {
		return client.For[*corev1.Secret](c()).Lister(context.Background())
	})}
}

// Authenticate recognises the bearer token of a request.
func (b *BootstrapToken) Authenticate(r *http.Request) (*request.User, error) {
	return fromRequest(r, b)
}

// Token recognises a token.
func (b *BootstrapToken) Token(_ context.Context, raw string, audiences []string) (*request.User, []string, error) {
	parts := bootstrapToken.FindStringSubmatch(raw)
	if parts == nil {
		return nil, nil, nil
	}
	id := parts[1]
	secret, ok := b.secrets().Get(metav1.NamespaceSystem, "bootstrap-token-"+id)
	if !ok || secret.DeletionTimestamp != nil || secret.Type != bootstrapType || string(secret.Data["token-id"]) != id {
		return nil, nil, errors.New("unknown bootstrap token")
	}
	if subtle.ConstantTimeCompare(secret.Data["token-secret"], []byte(parts[2])) == 0 {
		return nil, nil, errors.New("wrong bootstrap token")
	}
	if expiration := string(secret.Data["expiration"]); expiration != "" {
		at, err := time.Parse(time.RFC3339, expiration)
		if err != nil || time.Now().After(at) {
			return nil, nil, errors.New("bootstrap token has expired")
		}
	}
	if string(secret.Data["usage-bootstrap-authentication"]) != "true" {
		return nil, nil, errors.New("bootstrap token is not for authentication")
	}
	groups := []string{bootstrapGroup}
	for group := range strings.SplitSeq(string(secret.Data["auth-extra-groups"]), ",") {
		if group = strings.TrimSpace(group); group == "" {
			continue
		}
		if !bootstrapExtraGroup.MatchString(group) {
			return nil, nil, errors.New("bootstrap token with an invalid group")
		}
		groups = append(groups, group)
	}
	return &request.User{Name: bootstrapUser + id, Groups: append(groups, request.AllAuthenticated)}, audiences, nil
}
