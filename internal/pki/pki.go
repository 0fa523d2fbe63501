// Package pki makes the certificates of a cluster: one self-signed authority with an elliptic key, and certificates that
// it issues for servers, users and nodes.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Lifetimes of what is issued. Server certificates are renewed while running, once a third of the time is left.
const (
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	LeafLifetime      = 365 * 24 * time.Hour
)

// Authority signs certificates. It is immutable and safe for concurrent use.
type Authority struct {
	Certificate *x509.Certificate
	key         crypto.Signer
}

// NewAuthority makes a new authority.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(AuthorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{Certificate: cert, key: key}, nil
}

// LoadAuthority reads dir/name.crt and dir/name.key, and makes both when neither exists.
func LoadAuthority(dir, name string) (*Authority, error) {
	crt, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certPEM, err := os.ReadFile(crt)
	if errors.Is(err, os.ErrNotExist) {
		a, err := NewAuthority("proa-" + name)
		if err != nil {
			return nil, err
		}
		if err := WriteKey(keyFile, a.key); err != nil {
			return nil, err
		}
		return a, writeFile(crt, a.PEM(), 0o644)
	}
	if err != nil {
		return nil, err
	}
	key, err := LoadKey(keyFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, fmt.Errorf("%s holds no certificate", crt)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", crt, err)
	}
	return &Authority{Certificate: cert, key: key}, nil
}

// LoadKey reads a private key, and makes a new one when the file does not exist.
func LoadKey(file string) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		return key, WriteKey(file, key)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no private key", file)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds a key that cannot sign", file)
	}
	return signer, nil
}

// WriteKey writes a private key, readable by its owner only.
func WriteKey(file string, key crypto.Signer) error {
	data, err := KeyPEM(key)
	if err != nil {
		return err
	}
	return writeFile(file, data, 0o600)
}

// PEM of the authority's certificate.
func (a *Authority) PEM() []byte { return CertificatePEM(a.Certificate.Raw) }

// Pool that trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	return pool
}

// Hash identifies the authority in join tokens: the SHA-256 of its certificate, in hexadecimal.
func (a *Authority) Hash() string { return Hash(a.Certificate.Raw) }

// Hash is the SHA-256 of a DER certificate, in hexadecimal.
func Hash(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Leaf describes a certificate to issue.
type Leaf struct {
	CommonName    string
	Organizations []string
	// Hosts are the names and addresses of a server; empty for a client.
	Hosts    []string
	Lifetime time.Duration // default LeafLifetime
}

// Certify issues a certificate for a request made by somebody else, with the request's subject and alternative names.
func (a *Authority) Certify(request *x509.CertificateRequest, lifetime time.Duration, usage x509.KeyUsage, extended []x509.ExtKeyUsage) ([]byte, error) {
	now := time.Now()
	return x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial(), Subject: request.Subject,
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(lifetime),
		KeyUsage: usage, ExtKeyUsage: extended, BasicConstraintsValid: true,
		DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
	}, a.Certificate, request.PublicKey, a.key)
}

// Sign issues a certificate for a public key and returns it in DER form.
func (a *Authority) Sign(leaf Leaf, public crypto.PublicKey) ([]byte, error) {
	lifetime := leaf.Lifetime
	if lifetime == 0 {
		lifetime = LeafLifetime
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organizations},
		NotBefore:    now.Add(-5 * time.Minute),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(leaf.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range leaf.Hosts {
		if addr, err := netip.ParseAddr(h); err == nil {
			template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return x509.CreateCertificate(rand.Reader, template, a.Certificate, public, a.key)
}

// Issue makes a key and a certificate for it.
func (a *Authority) Issue(leaf Leaf) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := a.Sign(leaf, key.Public())
	if err != nil {
		return tls.Certificate{}, err
	}
	chain := [][]byte{der}
	if len(leaf.Hosts) > 0 {
		// A server shows its authority too, for machines that join knowing only its hash.
		chain = append(chain, a.Certificate.Raw)
	}
	parsed, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: parsed}, err
}

// Renewing issues a certificate on first use and again once a third of its time is left. Its methods fit tls.Config.
func (a *Authority) Renewing(leaf Leaf) *Renewing { return &Renewing{authority: a, leaf: leaf} }

// Renewing is a certificate that stays valid. Safe for concurrent use.
type Renewing struct {
	authority *Authority
	leaf      Leaf

	mu      sync.Mutex
	current *tls.Certificate
}

// Certificate returns the present certificate.
func (r *Renewing) Certificate() (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.current; c != nil && time.Until(c.Leaf.NotAfter) > c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)/3 {
		return c, nil
	}
	c, err := r.authority.Issue(r.leaf)
	if err != nil {
		return nil, err
	}
	r.current = &c
	return &c, nil
}

// ForServer is for tls.Config.GetCertificate.
func (r *Renewing) ForServer(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.Certificate() }

// ForClient is for tls.Config.GetClientCertificate.
func (r *Renewing) ForClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return r.Certificate()
}

// CertificatePEM encodes a DER certificate.
func CertificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// KeyPEM encodes a private key.
func KeyPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system has no randomness
	}
	return n
}

// writeFile replaces a file at once, so that a crash leaves the old or the new one.
func writeFile(file string, data []byte, mode os.FileMode) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
