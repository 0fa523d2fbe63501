package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa/apiserver/authn"
	"proa/apiserver/request"
	"proa/internal/pki"
)

// A join token is "proa1.<hash of the authority>.<secret>": the hash lets a machine that knows nothing else trust the server, the
// secret lets the server trust the machine.
const tokenPrefix = "proa1"

// joinPath is where machines ask to become nodes. Its own token check replaces the API's authentication.
const joinPath = "/proa/v1/join"

type joinRequest struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
	// Key is the public key of the node, DER.
	Key []byte `json:"key"`
}

type joinResponse struct {
	// Authority and Certificate are PEM. The certificate opens the API as system:node:<name> and serves the node's own API.
	Authority   string       `json:"authority"`
	Certificate string       `json:"certificate"`
	ClusterDNS  netip.Addr   `json:"clusterDNS"`
	PodCIDR     netip.Prefix `json:"podCIDR"`
	ServiceCIDR netip.Prefix `json:"serviceCIDR"`
}

// joinSecret reads the cluster's join secret, or makes it.
func joinSecret(dir string) (string, error) {
	file := filepath.Join(dir, "join.secret")
	data, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	text := hex.EncodeToString(secret)
	return text, os.WriteFile(file, []byte(text+"\n"), 0o600)
}

// joinHandler answers machines that know the secret, and nodes that ask for a new certificate with the one they have. nodes
// finds a Node by its name.
func joinHandler(config Config, ca *pki.Authority, secret string, nodes func(ctx context.Context, name string) (*corev1.Node, error)) http.Handler {
	certificates := authn.NewCertificate(ca.Pool())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		known, _ := certificates.Authenticate(r) // a bad certificate is none
		if subtle.ConstantTimeCompare([]byte(given), []byte(secret)) != 1 && known == nil {
			http.Error(w, "the join token is not this cluster's; see it with: proa token", http.StatusUnauthorized)
			return
		}
		if r.Method != http.MethodPost {
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		var req joinRequest
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&req); err != nil {
			http.Error(w, "read request: "+err.Error(), http.StatusBadRequest)
			return
		}
		if known != nil && (known.Name != request.NodeUserPrefix+req.Name || !slices.Contains(known.Groups, request.Nodes)) {
			http.Error(w, known.Name+" may not have the certificate of node "+req.Name, http.StatusForbidden)
			return
		}
		if problems := validation.IsDNS1123Subdomain(req.Name); len(problems) > 0 {
			http.Error(w, "node name "+req.Name+": "+problems[0], http.StatusBadRequest)
			return
		}
		key, err := x509.ParsePKIXPublicKey(req.Key)
		if err != nil {
			http.Error(w, "node key: "+err.Error(), http.StatusBadRequest)
			return
		}
		node, err := nodes(r.Context(), req.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if err == nil {
			if owner := otherOwner(node, req.Addresses); owner != "" {
				http.Error(w, fmt.Sprintf("the name %s belongs to the node at %s; give this machine another with --node-name", req.Name, owner), http.StatusConflict)
				return
			}
		}
		der, err := ca.Sign(nodeLeaf(req.Name, req.Addresses), key)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(w).Encode(joinResponse{
			Authority: string(ca.PEM()), Certificate: string(pki.CertificatePEM(der)),
			ClusterDNS: clusterDNS(config), PodCIDR: config.PodCIDR, ServiceCIDR: config.ServiceCIDR,
		})
		if err != nil {
			config.Log.Warn("join answer not sent", "node", req.Name, "err", err)
			return
		}
		config.Log.Info("node admitted", "node", req.Name)
	})
}

// otherOwner is the address of the machine that is at work under the node's name and has none of addresses, or "". Two
// machines may have the same host name; they must not take the node from each other.
func otherOwner(node *corev1.Node, addresses []string) string {
	owner := ""
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if slices.Contains(addresses, a.Address) {
			return ""
		}
		owner = a.Address
	}
	if !nodeReady(node) {
		return "" // it may have moved
	}
	return owner
}

func nodeLeaf(name string, addresses []string) pki.Leaf {
	return pki.Leaf{
		CommonName: request.NodeUserPrefix + name, Organizations: []string{request.Nodes},
		Hosts: append([]string{name}, addresses...),
	}
}

// identity is what a joined node knows.
type identity struct {
	joinResponse
	// Key is the PEM form of the node's private key.
	Key string `json:"key"`

	cert tls.Certificate
	pool *x509.CertPool
}

// serverURL completes what a user calls the server: https and the usual port may be left out.
func serverURL(server string) (string, error) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("--server: %w", err)
	}
	if u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("--server %s: want the URL of the cluster's API, such as https://192.0.2.10:6443", server)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "6443")
	}
	return "https://" + u.Host, nil
}

// join asks server for a node certificate. A node that has joined before, with more than a third of its certificate's
// time left, does not ask again, unless the token is another cluster's.
func join(ctx context.Context, server, token, dir, name string, addresses []string) (*identity, error) {
	prefix, rest, _ := strings.Cut(token, ".")
	hash, secret, ok := strings.Cut(rest, ".")
	id, err := loadIdentity(dir)
	if err == nil && id.cert.Leaf.Subject.CommonName == request.NodeUserPrefix+name &&
		time.Until(id.cert.Leaf.NotAfter) > pki.LeafLifetime/3 && id.covers(addresses) && (token == "" || id.trusts(hash)) {
		return id, nil
	}
	switch {
	case token == "":
		return nil, errors.New("--token is needed to join; on the server, run: proa token")
	case prefix != tokenPrefix || !ok:
		return nil, errors.New("the token is not a proa join token; on the server, run: proa token")
	}
	header := http.Header{"Authorization": {"Bearer " + secret}}
	return admitted(ctx, &http.Client{Transport: pinned(hash), Timeout: 30 * time.Second}, header, server, dir, name, addresses)
}

// renew asks server for another certificate with the one that the node has.
func (id *identity) renew(ctx context.Context, server, dir, name string, addresses []string) (*identity, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: id.pool, Certificates: []tls.Certificate{id.cert}}}
	defer transport.CloseIdleConnections()
	return admitted(ctx, &http.Client{Transport: transport, Timeout: 30 * time.Second}, http.Header{}, server, dir, name, addresses)
}

// admitted has a certificate made for a new key, and keeps both.
func admitted(ctx context.Context, c *http.Client, header http.Header, server, dir, name string, addresses []string) (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(joinRequest{Name: name, Addresses: addresses, Key: public})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+joinPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	res, err := c.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s to join: %w", server, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s refused: %s", server, bytes.TrimSpace(answer))
	}
	keyPEM, err := pki.KeyPEM(key)
	if err != nil {
		return nil, err
	}
	id := &identity{Key: string(keyPEM)}
	if err := json.Unmarshal(answer, &id.joinResponse); err != nil {
		return nil, fmt.Errorf("%s answered: %w", server, err)
	}
	if err := id.complete(); err != nil {
		return nil, fmt.Errorf("%s answered: %w", server, err)
	}
	return id, id.save(dir)
}

// pinned trusts a server whose chain holds the authority with the hash.
func pinned(hash string) http.RoundTripper {
	return &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // the check below replaces the one by known authorities
		VerifyConnection: func(state tls.ConnectionState) error {
			chain := state.PeerCertificates
			root := chain[len(chain)-1]
			if pki.Hash(root.Raw) != hash {
				return errors.New("the server's authority is not the one in the join token")
			}
			pool := x509.NewCertPool()
			pool.AddCert(root)
			_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: state.ServerName})
			if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
				return fmt.Errorf("%w; is the clock of this machine right?", err)
			}
			return err
		},
	}}
}

const identityFile = "node.json"

func loadIdentity(dir string) (*identity, error) {
	data, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return nil, err
	}
	id := &identity{}
	if err := json.Unmarshal(data, id); err != nil {
		return nil, err
	}
	return id, id.complete()
}

// complete makes what follows from the PEM texts.
func (id *identity) complete() (err error) {
	if id.cert, err = tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key)); err != nil {
		return err
	}
	if id.pool = x509.NewCertPool(); !id.pool.AppendCertsFromPEM([]byte(id.Authority)) {
		return errors.New("no authority")
	}
	return nil
}

// save replaces the file as a whole: a node that ends meanwhile has one identity or the other.
func (id *identity) save(dir string) error {
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, identityFile)
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// trusts reports whether the authority is the one with the hash.
func (id *identity) trusts(hash string) bool {
	ca, err := parseCertificate([]byte(id.Authority))
	return err == nil && pki.Hash(ca.Raw) == hash
}

func (id *identity) covers(addresses []string) bool {
	for _, a := range addresses {
		if id.cert.Leaf.VerifyHostname(a) != nil {
			return false
		}
	}
	return true
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}
