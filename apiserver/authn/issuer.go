package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"proa/apiserver/request"
)

// Lifetimes of service account tokens.
const (
	DefaultLifetime = time.Hour
	minLifetime     = 10 * time.Minute
	// A pod's token with exactly this lifetime is the one that admission mounts for programs that may not reload it: it
	// is valid for a year, and a use after the hour only counts as stale.
	extendedRequest  = 3607
	extendedLifetime = 365 * 24 * time.Hour
)

const (
	legacyIssuer = "kubernetes/serviceaccount"
	// DefaultIssuer is the issuer's URL when none is configured.
	DefaultIssuer = "https://kubernetes.default.svc.cluster.local"
)

// IssuerConfig says how service account tokens are made.
type IssuerConfig struct {
	// Key signs; it is on P-256.
	Key *ecdsa.PrivateKey
	// TrustedKeys verify tokens besides Key: those it replaced.
	TrustedKeys []*ecdsa.PublicKey
	// URL of the issuer, DefaultIssuer when empty.
	URL string
	// Audiences that the API server answers to; the first is the default of new tokens. Empty means URL.
	Audiences []string
	// MaxLifetime shortens what is asked for; 0 means no limit.
	MaxLifetime time.Duration
	// JWKSURI is where clients find the keys; URL + /openid/v1/jwks when empty.
	JWKSURI string
}

// Issuer makes and knows service account tokens. It is safe for concurrent use.
type Issuer struct {
	config    IssuerConfig
	signer    jose.Signer
	keys      map[string]*ecdsa.PublicKey
	discovery []byte
	jwks      []byte
}

// NewIssuer returns the issuer of a cluster.
func NewIssuer(config IssuerConfig) (*Issuer, error) {
	if config.Key == nil {
		return nil, errors.New("service account issuer without a key")
	}
	if config.URL == "" {
		config.URL = DefaultIssuer
	}
	if len(config.Audiences) == 0 {
		config.Audiences = []string{config.URL}
	}
	if config.JWKSURI == "" {
		config.JWKSURI = strings.TrimSuffix(config.URL, "/") + "/openid/v1/jwks"
	}
	i := &Issuer{config: config, keys: map[string]*ecdsa.PublicKey{}}
	var set jose.JSONWebKeySet
	for _, key := range append([]*ecdsa.PublicKey{&config.Key.PublicKey}, config.TrustedKeys...) {
		id, err := keyID(key)
		if err != nil {
			return nil, err
		}
		i.keys[id] = key
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	var err error
	if i.jwks, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("encode the key set: %w", err)
	}
	i.discovery, err = json.Marshal(map[string]any{
		"issuer":                                config.URL,
		"jwks_uri":                              config.JWKSURI,
		"response_types_supported":              []string{"id_token"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{string(jose.ES256)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the discovery document: %w", err)
	}
	signing := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: config.Key, KeyID: set.Keys[0].KeyID}}
	if i.signer, err = jose.NewSigner(signing, nil); err != nil {
		return nil, fmt.Errorf("make the token signer: %w", err)
	}
	return i, nil
}

// keyID is the URL-safe hash of the key, as the discovery document of every cluster names keys.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode the service account key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// claims are all claims of a bound token.
type claims struct {
	jwt.Claims
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string           `json:"namespace,omitempty"`
	Node           *reference       `json:"node,omitempty"`
	Pod            *reference       `json:"pod,omitempty"`
	Secret         *reference       `json:"secret,omitempty"`
	ServiceAccount reference        `json:"serviceaccount,omitzero"`
	WarnAfter      *jwt.NumericDate `json:"warnafter,omitempty"`
}

type reference struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// legacyClaims are those of a token kept in a Secret.
type legacyClaims struct {
	jwt.Claims
	Namespace string `json:"kubernetes.io/serviceaccount/namespace"`
	Secret    string `json:"kubernetes.io/serviceaccount/secret.name"`
	Name      string `json:"kubernetes.io/serviceaccount/service-account.name"`
	UID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
}

// Bound is what a token is tied to. At most one of Pod, Secret and Node is the binding; a Node beside a Pod only informs.
type Bound struct {
	Pod    *corev1.Pod
	Secret *corev1.Secret
	// NodeName and NodeUID of the bound node, or of the pod's.
	NodeName, NodeUID string
}

// Issued is a new token.
type Issued struct {
	Token string
	// ID is the jti claim.
	ID      string
	Expires time.Time
}

// Issue makes a token for a service account. Nil audiences mean the API server, lifetime 0 the default.
func (i *Issuer) Issue(account *corev1.ServiceAccount, audiences []string, lifetime time.Duration, bound Bound) (Issued, error) {
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	if limit := i.config.MaxLifetime; limit > 0 {
		lifetime = min(lifetime, limit)
	}
	own := len(audiences) == 0
	if own {
		audiences = i.config.Audiences
	}
	own = own || len(audiences) == 1 && len(shared(i.config.Audiences, audiences)) == 1
	now := time.Now()
	issued := Issued{ID: string(uuid.NewUUID()), Expires: now.Add(lifetime)}
	c := claims{
		Claims: jwt.Claims{
			Issuer:    i.config.URL,
			Subject:   request.ServiceAccountUsers + account.Namespace + ":" + account.Name,
			Audience:  audiences,
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			Expiry:    jwt.NewNumericDate(issued.Expires),
			ID:        issued.ID,
		},
		Kubernetes: kubernetesClaims{
			Namespace:      account.Namespace,
			ServiceAccount: reference{account.Name, string(account.UID)},
		},
	}
	if bound.Pod != nil {
		c.Kubernetes.Pod = &reference{bound.Pod.Name, string(bound.Pod.UID)}
		if own && lifetime == extendedRequest*time.Second {
			c.Kubernetes.WarnAfter = c.Expiry
			c.Expiry = jwt.NewNumericDate(now.Add(extendedLifetime))
		}
	}
	if bound.Secret != nil {
		c.Kubernetes.Secret = &reference{bound.Secret.Name, string(bound.Secret.UID)}
	}
	if bound.NodeName != "" {
		c.Kubernetes.Node = &reference{bound.NodeName, bound.NodeUID}
	}
	var err error
	issued.Token, err = jwt.Signed(i.signer).Claims(c).Serialize()
	if err != nil {
		return Issued{}, fmt.Errorf("sign a token of %s/%s: %w", account.Namespace, account.Name, err)
	}
	return issued, nil
}

// IssueLegacy makes the token that a Secret of type kubernetes.io/service-account-token keeps. It never expires.
func (i *Issuer) IssueLegacy(account *corev1.ServiceAccount, secret string) (string, error) {
	token, err := jwt.Signed(i.signer).Claims(legacyClaims{
		Claims: jwt.Claims{
			Issuer:  legacyIssuer,
			Subject: request.ServiceAccountUsers + account.Namespace + ":" + account.Name,
		},
		Namespace: account.Namespace, Secret: secret, Name: account.Name, UID: string(account.UID),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign the token of secret %s/%s: %w", account.Namespace, secret, err)
	}
	return token, nil
}

// Handlers serve OpenID Connect discovery, by path.
func (i *Issuer) Handlers() map[string]http.Handler {
	serve := func(kind string, body []byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
				return
			}
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "public, max-age=3600")
			_, _ = w.Write(body) // the client is gone when this does not work
		})
	}
	return map[string]http.Handler{
		"/.well-known/openid-configuration": serve("application/json", i.discovery),
		"/openid/v1/jwks":                   serve("application/jwk-set+json", i.jwks),
	}
}
