package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/internal/pki"
)

// door is a whole server behind its TLS listener, as users find it: certificates, default roles, admission, controllers.
type door struct {
	url   string
	ca    *pki.Authority
	key   *ecdsa.PrivateKey // signs service account tokens
	admin *sender
}

// TestDoor asks one server who may do what. Each part uses namespaces and names of its own.
func TestDoor(t *testing.T) {
	d := newDoor(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *door)
	}{
		{"certificates", testCertificates},
		{"anonymous", testAnonymous},
		{"headers", testHeaders},
		{"forged tokens", testForgedTokens},
		{"bound tokens", testBoundTokens},
		{"secret tokens", testSecretTokens},
		{"signing requests", testSigningRequests},
		{"bootstrap tokens", testBootstrapToken},
		{"impersonation", testImpersonation},
		{"self reviews", testSelfReviews},
		{"subject reviews", testSubjectReviews},
		{"token reviews", testTokenReviews},
		{"escalation", testEscalation},
		{"escalate and bind", testEscalateAndBind},
		{"nodes read", testNodesRead},
		{"nodes write", testNodesWrite},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.test(t, d)
		})
	}
}

func newDoor(t *testing.T) *door {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() {
		ended <- RunServer(ctx, Config{DataDir: dir, InMemory: true, NoNode: true, Port: port, Log: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
	d := &door{url: fmt.Sprintf("https://127.0.0.1:%d", port)}
	for deadline := time.Now().Add(30 * time.Second); ; {
		if _, err = loadState(dir); err == nil {
			break // written once the default roles are there
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the server ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("no server after 30 s: %v", err)
		}
	}
	if d.ca, err = pki.LoadAuthority(filepath.Join(dir, "pki"), "ca"); err != nil {
		t.Fatal(err)
	}
	key, err := pki.LoadKey(filepath.Join(dir, "pki", "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	d.key = key.(*ecdsa.PrivateKey)
	d.admin = d.user(t, "admin", "system:masters")
	return d
}

// sender sends requests with certain credentials and headers.
type sender struct {
	http   *http.Client
	header http.Header
}

// with returns a sender that adds headers: names and values in turn.
func (s *sender) with(pairs ...string) *sender {
	out := &sender{s.http, s.header.Clone()}
	for i := 0; i < len(pairs); i += 2 {
		out.header.Add(pairs[i], pairs[i+1])
	}
	return out
}

// user sends with a client certificate of the cluster's authority.
func (d *door) user(t *testing.T, name string, groups ...string) *sender {
	t.Helper()
	cert, err := d.ca.Issue(pki.Leaf{CommonName: name, Organizations: groups})
	if err != nil {
		t.Fatal(err)
	}
	return d.certificate(t, &cert)
}

// certificate sends with any client certificate, or none, whatever authorities the server names.
func (d *door) certificate(t *testing.T, cert *tls.Certificate) *sender {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: d.ca.Pool(), MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert == nil {
				return &tls.Certificate{}, nil
			}
			return cert, nil
		},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &sender{&http.Client{Transport: transport, Timeout: time.Minute}, http.Header{}}
}

// bearer sends with a token.
func (d *door) bearer(t *testing.T, token string) *sender {
	return d.certificate(t, nil).with("Authorization", "Bearer "+token)
}

// send sends "METHOD /path" with a body, if any: JSON text or what becomes it.
func (d *door) send(t *testing.T, s *sender, ask string, body any) (int, []byte) {
	t.Helper()
	method, path, _ := strings.Cut(ask, " ")
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = s.header.Clone()
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != nil:
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.http.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", ask, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", ask, err)
	}
	return res.StatusCode, answer
}

// outcome is the code of an answer, followed by the reason and message of a refusal.
func (d *door) outcome(t *testing.T, s *sender, ask string, body any) string {
	t.Helper()
	code, answer := d.send(t, s, ask, body)
	if code < 300 {
		return fmt.Sprint(code)
	}
	var status metav1.Status
	if err := json.Unmarshal(answer, &status); err != nil || status.Kind != "Status" {
		return fmt.Sprintf("%d %s", code, bytes.TrimSpace(answer))
	}
	if status.Code != int32(code) {
		t.Errorf("%s: the status says %d, the answer %d", ask, status.Code, code)
	}
	return fmt.Sprintf("%d %s: %s", code, status.Reason, status.Message)
}

// wants fails unless the outcome is the given one.
func (d *door) wants(t *testing.T, want string, s *sender, ask string, body any) {
	t.Helper()
	if got := d.outcome(t, s, ask, body); got != want {
		t.Errorf("%s:\n got %s\nwant %s", ask, got, want)
	}
}

// made creates an object as the administrator and reads the answer into out, unless that is nil.
func (d *door) made(t *testing.T, path string, body, out any) {
	t.Helper()
	code, answer := d.send(t, d.admin, "POST "+path, body)
	if code != http.StatusCreated {
		t.Fatalf("create at %s: %d %s", path, code, answer)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *door) namespace(t *testing.T, name string) {
	t.Helper()
	d.made(t, "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`, nil)
}

// bind gives a role to a user or, with "group:", to a group.
func (d *door) bind(t *testing.T, namespace, name, kind, role, subject string) {
	t.Helper()
	subjectKind := "User"
	if group, ok := strings.CutPrefix(subject, "group:"); ok {
		subjectKind, subject = "Group", group
	}
	path := "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	if namespace != "" {
		path = "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/rolebindings"
	}
	d.made(t, path, fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q}]}`, name, kind, role, subjectKind, subject), nil)
}

const (
	unauthorizedOutcome = "401 Unauthorized: Unauthorized"
	whoami              = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
)

// who is how the server knows a sender: name, UID, groups and extra.
func (d *door) who(t *testing.T, s *sender) string {
	t.Helper()
	code, answer := d.send(t, s, whoami, "{}")
	if code != http.StatusCreated {
		return d.outcome(t, s, whoami, "{}")
	}
	var review struct {
		Status struct{ UserInfo json.RawMessage }
	}
	if err := json.Unmarshal(answer, &review); err != nil {
		t.Fatal(err)
	}
	return string(review.Status.UserInfo)
}

func testCertificates(t *testing.T, d *door) {
	if got, want := d.who(t, d.user(t, "jane", "dev", "ops")), `{"username":"jane","groups":["dev","ops","system:authenticated"]}`; got != want {
		t.Errorf("jane is %s, want %s", got, want)
	}
	if got, want := d.who(t, d.user(t, "joe")), `{"username":"joe","groups":["system:authenticated"]}`; got != want {
		t.Errorf("joe is %s, want %s", got, want)
	}
	d.wants(t, "200", d.user(t, "root", "system:masters"), "GET /api/v1/secrets", nil)
	d.wants(t, `403 Forbidden: secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" at the cluster scope`,
		d.user(t, "jane"), "GET /api/v1/secrets", nil)
	d.wants(t, `403 Forbidden: forbidden: User "jane" cannot get path "/metrics"`, d.user(t, "jane"), "GET /metrics", nil)
	d.wants(t, "200", d.user(t, "jane"), "GET /apis", nil)

	other, err := pki.NewAuthority("proa-ca") // another key under the same name
	if err != nil {
		t.Fatal(err)
	}
	issue := func(ca *pki.Authority, leaf pki.Leaf) *tls.Certificate {
		cert, err := ca.Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return &cert
	}
	masters := []string{"system:masters"}
	for name, cert := range map[string]*tls.Certificate{
		"other authority": issue(other, pki.Leaf{CommonName: "root", Organizations: masters}),
		"expired":         issue(d.ca, pki.Leaf{CommonName: "root", Organizations: masters, Lifetime: -time.Minute}),
		"no name":         issue(d.ca, pki.Leaf{Organizations: masters}),
	} {
		t.Run(name, func(t *testing.T) {
			s := d.certificate(t, cert)
			d.wants(t, unauthorizedOutcome, s, "GET /api/v1/secrets", nil)
			d.wants(t, "200", s, "GET /readyz", nil)
		})
	}
}

// Without credentials only what the role system:public-info-viewer lists can be read.
func testAnonymous(t *testing.T, d *door) {
	s := d.certificate(t, nil)
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version"} {
		d.wants(t, "200", s, "GET "+path, nil)
	}
	for _, ask := range []string{
		"GET /", "GET /api", "GET /apis", "GET /api/v1", "GET /openapi/v2", "GET /openapi/v3", "GET /metrics", "GET /healthzz", "GET /version/x",
		"GET /.well-known/openid-configuration", "GET /openid/v1/jwks", "GET /api/v1/nodes", "GET /api/v1/namespaces/kube-public/configmaps", "GET /nowhere",
		whoami,
	} {
		d.wants(t, unauthorizedOutcome, s, ask, nil)
	}
	d.wants(t, "401 the join token is not this cluster's; see it with: proa token", s, "POST "+joinPath, "{}")
}

// Headers of proxies, broken credentials and look-alikes give nobody a name.
func testHeaders(t *testing.T, d *door) {
	nobody, jane := d.certificate(t, nil), d.user(t, "jane")
	const ask = "GET /api/v1/secrets"
	for name, s := range map[string]*sender{
		"proxy":                   nobody.with("X-Remote-User", "root", "X-Remote-Group", "system:masters"),
		"forwarded":               nobody.with("X-Forwarded-For", "127.0.0.1", "X-Forwarded-User", "root"),
		"impersonation":           nobody.with("Impersonate-User", "root", "Impersonate-Group", "system:masters"),
		"basic":                   nobody.with("Authorization", "Basic YWRtaW46YWRtaW4="),
		"no token":                nobody.with("Authorization", "Bearer"),
		"empty token":             nobody.with("Authorization", "Bearer "),
		"words":                   nobody.with("Authorization", "Bearer system:masters"),
		"no scheme":               nobody.with("Authorization", "eyJhbGciOiJub25lIn0.e30."),
		"websocket":               nobody.with("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.c3lzdGVt, v4.channel.k8s.io"),
		"broken websocket":        nobody.with("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.###"),
		"join secret as a bearer": nobody.with("Authorization", "Bearer "+strings.Repeat("0", 32)),
	} {
		t.Run(name, func(t *testing.T) { d.wants(t, unauthorizedOutcome, s, ask, nil) })
	}
	const notJane = `403 Forbidden: secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" at the cluster scope`
	d.wants(t, notJane, jane.with("X-Remote-User", "root", "X-Remote-Group", "system:masters"), ask, nil)
	d.wants(t, notJane, jane.with("Impersonate_User", "root"), ask, nil)
	d.wants(t, notJane, jane.with("Authorization", "Bearer rubbish"), ask, nil)
	d.wants(t, `403 Forbidden: users "root" is forbidden: User "system:anonymous" cannot impersonate resource "users" in API group "" at the cluster scope`,
		nobody.with("Impersonate-User", "root"), "GET /healthz", nil)
}

// publicDER is a public key in the form in which it could be mistaken for a secret.
func publicDER(t *testing.T, key *ecdsa.PublicKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
