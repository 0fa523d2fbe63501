package authn

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"sync"
	"time"

	"proa/apiserver/request"
)

// Certificate recognises client certificates: the common name is the user, the organizations are the groups. It is safe
// for concurrent use.
type Certificate struct {
	pool *x509.CertPool

	mu   sync.RWMutex
	seen map[*x509.Certificate]verified
}

type verified struct {
	user *request.User
	err  error
}

// rememberedCertificates bounds the memory of verified certificates, which is about the number of open connections.
const rememberedCertificates = 8192

// NewCertificate returns an authenticator that trusts the authorities in pool.
func NewCertificate(pool *x509.CertPool) *Certificate {
	return &Certificate{pool: pool, seen: map[*x509.Certificate]verified{}}
}

// Authenticate verifies the certificate of the request's connection. All requests of a connection share the parsed
// certificate, so that its chain is verified once for each connection and only the expiry for each request.
func (c *Certificate) Authenticate(r *http.Request) (*request.User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	c.mu.RLock()
	v, ok := c.seen[leaf]
	c.mu.RUnlock()
	if !ok {
		v = c.verify(r.TLS.PeerCertificates)
		c.mu.Lock()
		if len(c.seen) >= rememberedCertificates {
			clear(c.seen)
		}
		c.seen[leaf] = v
		c.mu.Unlock()
	}
	if v.err == nil && time.Now().After(leaf.NotAfter) {
		return nil, fmt.Errorf("x509: certificate of %q has expired", leaf.Subject.CommonName)
	}
	return v.user, v.err
}

func (c *Certificate) verify(chain []*x509.Certificate) verified {
	leaf := chain[0]
	options := x509.VerifyOptions{
		Roots: c.pool, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	if _, err := leaf.Verify(options); err != nil {
		return verified{err: fmt.Errorf("verifying certificate SN=%d: %w", leaf.SerialNumber, err)}
	}
	if leaf.Subject.CommonName == "" {
		return verified{} // names nobody
	}
	groups := append([]string{}, leaf.Subject.Organization...)
	return verified{user: &request.User{Name: leaf.Subject.CommonName, Groups: append(groups, request.AllAuthenticated)}}
}
