package authn

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"

	"proa/api"
	"proa/apiserver/request"
	"proa/client"
)

// Keys in User.Extra.
const (
	CredentialIDKey = "authentication.kubernetes.io/credential-id"
	PodNameKey      = "authentication.kubernetes.io/pod-name"
	PodUIDKey       = "authentication.kubernetes.io/pod-uid"
	NodeNameKey     = "authentication.kubernetes.io/node-name"
	NodeUIDKey      = "authentication.kubernetes.io/node-uid"
	staleTokenKey   = "authentication.k8s.io/stale-token"
)

// deletionLeeway is how long a token outlives the deletion mark of what it is bound to.
const deletionLeeway = 60 * time.Second

// rememberedTokens bounds the memory of parsed tokens.
const rememberedTokens = 8192

var errInvalidated = errors.New("service account token has been invalidated")

// ServiceAccount recognises the tokens of an Issuer: bound ones, and those kept in Secrets. The signature of a token is
// checked once; that everything it is bound to still exists, at every use. It is safe for concurrent use.
type ServiceAccount struct {
	issuer *Issuer
	client func() client.Interface
	reads  func() *readers

	mu     sync.RWMutex
	parsed map[[sha256.Size]byte]*token
}

type readers struct {
	accounts client.TypedLister[*corev1.ServiceAccount]
	pods     client.TypedLister[*corev1.Pod]
	secrets  client.TypedLister[*corev1.Secret]
	nodes    client.TypedLister[*corev1.Node]
}

// token is a parsed token with a good signature.
type token struct {
	audiences                 []string
	namespace                 string
	account                   reference
	pod, secret, node         *reference
	notBefore, expires, stale time.Time
	id                        string
	legacy                    bool
	user                      *request.User
}

// Authenticator returns the authenticator of the issuer's tokens. The client is asked for at the first token, which may
// be later than the making of the authenticator.
func (i *Issuer) Authenticator(c func() client.Interface) *ServiceAccount {
	return &ServiceAccount{
		issuer: i, client: c, parsed: map[[sha256.Size]byte]*token{},
		reads: sync.OnceValue(func() *readers {
			ctx, c := context.Background(), c()
			return &readers{
				accounts: client.For[*corev1.ServiceAccount](c).Lister(ctx),
				pods:     client.For[*corev1.Pod](c).Lister(ctx),
				secrets:  client.For[*corev1.Secret](c).Lister(ctx),
				nodes:    client.For[*corev1.Node](c).Lister(ctx),
			}
		}),
	}
}

// Authenticate recognises the bearer token of a request.
func (s *ServiceAccount) Authenticate(r *http.Request) (*request.User, error) {
	return fromRequest(r, s)
}

// Token recognises a token.
func (s *ServiceAccount) Token(_ context.Context, raw string, audiences []string) (*request.User, []string, error) {
	sum := sha256.Sum256([]byte(raw))
	s.mu.RLock()
	t := s.parsed[sum]
	s.mu.RUnlock()
	if t == nil {
		var err error
		if t, err = s.issuer.parse(raw); t == nil || err != nil {
			return nil, nil, err
		}
		s.mu.Lock()
		if len(s.parsed) >= rememberedTokens {
			clear(s.parsed)
		}
		s.parsed[sum] = t
		s.mu.Unlock()
	}
	offered := t.audiences
	if t.legacy {
		offered = s.issuer.config.Audiences
	}
	if len(audiences) == 0 {
		audiences = s.issuer.config.Audiences
	}
	good := shared(offered, audiences)
	if len(good) == 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", offered, audiences)
	}
	now := time.Now()
	switch {
	case now.Before(t.notBefore.Add(-time.Minute)):
		return nil, nil, errors.New("service account token is not valid yet")
	case !t.expires.IsZero() && now.After(t.expires.Add(time.Minute/6)):
		return nil, nil, errors.New("service account token has expired")
	}
	if err := s.alive(t, raw, now); err != nil {
		return nil, nil, err
	}
	if !t.stale.IsZero() && now.After(t.stale) {
		return withExtra(t.user, staleTokenKey, "subject: "+t.user.Name+", seconds after warning threshold: "+
			fmt.Sprint(int64(now.Sub(t.stale).Seconds()))), good, nil
	}
	return t.user, good, nil
}

// alive checks that the account and what the token is bound to are still the ones it was issued for.
func (s *ServiceAccount) alive(t *token, raw string, now time.Time) error {
	reads := s.reads()
	account, ok := reads.accounts.Get(t.namespace, t.account.Name)
	if !ok || gone(account, t.account.UID, now) {
		return errInvalidated
	}
	if t.secret != nil {
		secret, ok := reads.secrets.Get(t.namespace, t.secret.Name)
		if !ok || gone(secret, t.secret.UID, now) {
			return errInvalidated
		}
		if t.legacy && subtle.ConstantTimeCompare(secret.Data[corev1.ServiceAccountTokenKey], []byte(raw)) == 0 {
			return errInvalidated
		}
	}
	if t.pod != nil {
		pod, ok := reads.pods.Get(t.namespace, t.pod.Name)
		if !ok || gone(pod, t.pod.UID, now) {
			return errInvalidated
		}
	} else if t.node != nil {
		node, ok := reads.nodes.Get("", t.node.Name)
		if !ok || gone(node, t.node.UID, now) {
			return errInvalidated
		}
	}
	return nil
}

// gone reports whether obj is another one than uid names, or has been on its way out for longer than the leeway. An
// empty uid names whatever has the name. The deletion timestamp of a graceful deletion already includes the grace period.
func gone(obj api.Object, uid string, now time.Time) bool {
	if uid != "" && string(obj.GetUID()) != uid {
		return true
	}
	at := obj.GetDeletionTimestamp()
	return at != nil && now.After(at.Add(deletionLeeway))
}

// parse checks the signature of a token of this issuer; it returns nil for a token of somebody else.
func (i *Issuer) parse(raw string) (*token, error) {
	signed, err := jwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, nil
	}
	var unsafe jwt.Claims
	if err := signed.UnsafeClaimsWithoutVerification(&unsafe); err != nil {
		return nil, nil
	}
	if unsafe.Issuer != i.config.URL && unsafe.Issuer != legacyIssuer {
		return nil, nil
	}
	key := i.keys[signed.Headers[0].KeyID]
	if key == nil {
		return nil, errors.New("service account token is signed by an unknown key")
	}
	t := &token{}
	if unsafe.Issuer == legacyIssuer {
		var c legacyClaims
		if err := signed.Claims(key, &c); err != nil {
			return nil, fmt.Errorf("verify a service account token: %w", err)
		}
		t.legacy = true
		t.namespace, t.account = c.Namespace, reference{c.Name, c.UID}
		t.secret = &reference{Name: c.Secret}
		return t.finish(c.Claims)
	}
	var c claims
	if err := signed.Claims(key, &c); err != nil {
		return nil, fmt.Errorf("verify a service account token: %w", err)
	}
	k := c.Kubernetes
	t.namespace, t.account, t.pod, t.secret, t.node = k.Namespace, k.ServiceAccount, k.Pod, k.Secret, k.Node
	if k.WarnAfter != nil {
		t.stale = k.WarnAfter.Time()
	}
	if c.Expiry == nil {
		return nil, errors.New("service account token without an expiry")
	}
	return t.finish(c.Claims)
}

func (t *token) finish(c jwt.Claims) (*token, error) {
	name := request.ServiceAccountUsers + t.namespace + ":" + t.account.Name
	if t.namespace == "" || t.account.Name == "" || c.Subject != name {
		return nil, errors.New("service account token whose subject is not its account")
	}
	t.audiences, t.id = c.Audience, c.ID
	if c.NotBefore != nil {
		t.notBefore = c.NotBefore.Time()
	}
	if c.Expiry != nil {
		t.expires = c.Expiry.Time()
	}
	t.user = &request.User{
		Name: name, UID: t.account.UID,
		Groups: []string{request.ServiceAccounts, request.ServiceAccounts + ":" + t.namespace, request.AllAuthenticated},
	}
	extra := map[string][]string{}
	if t.id != "" {
		extra[CredentialIDKey] = []string{"JTI=" + t.id}
	}
	if t.pod != nil {
		extra[PodNameKey], extra[PodUIDKey] = []string{t.pod.Name}, []string{t.pod.UID}
	}
	if t.node != nil {
		extra[NodeNameKey] = []string{t.node.Name}
		if t.node.UID != "" {
			extra[NodeUIDKey] = []string{t.node.UID}
		}
	}
	if len(extra) > 0 {
		t.user.Extra = extra
	}
	return t, nil
}

func withExtra(u *request.User, key, value string) *request.User {
	out := *u
	out.Extra = map[string][]string{key: {value}}
	for k, v := range u.Extra {
		out.Extra[k] = v
	}
	return &out
}
