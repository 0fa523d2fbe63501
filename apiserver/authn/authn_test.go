package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/api/builtin"
	"proa/apiserver/request"
	"proa/client"
	"proa/client/clientfake"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

type world struct {
	client *clientfake.Client
	issuer *Issuer
	auth   *ServiceAccount
}

func newWorld(t *testing.T) *world {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}
	}
	c := clientfake.New(builtin.Table(),
		&corev1.ServiceAccount{ObjectMeta: meta("sa")},
		&corev1.ServiceAccount{ObjectMeta: meta("other")},
		&corev1.Pod{ObjectMeta: meta("pod"), Spec: corev1.PodSpec{ServiceAccountName: "sa", NodeName: "n1"}},
		&corev1.Pod{ObjectMeta: meta("waiting"), Spec: corev1.PodSpec{ServiceAccountName: "sa"}},
		&corev1.Secret{ObjectMeta: meta("secret")},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-n1"}},
	)
	issuer, err := NewIssuer(IssuerConfig{Key: newKey(t)})
	if err != nil {
		t.Fatal(err)
	}
	return &world{c, issuer, issuer.Authenticator(func() client.Interface { return c })}
}

func (w *world) request(t *testing.T, spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	t.Helper()
	out, err := Posts(w.client, w.issuer, w.auth)["serviceaccounts/token"](t.Context(), request.Post{
		Client: w.client, Namespace: "ns", Name: "sa", Body: &authenticationv1.TokenRequest{Spec: spec},
	})
	if err != nil {
		return nil, err
	}
	return out.(*authenticationv1.TokenRequest), nil
}

func podRef(kind, name string, uid types.UID) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: uid}
}

func TestTokenOfPod(t *testing.T) {
	w := newWorld(t)
	answer, err := w.request(t, authenticationv1.TokenRequestSpec{BoundObjectRef: podRef("Pod", "pod", "uid-pod")})
	if err != nil {
		t.Fatal(err)
	}
	user, audiences, err := w.auth.Token(t.Context(), answer.Status.Token, nil)
	if err != nil || user == nil {
		t.Fatalf("token not recognised: %v, %v", user, err)
	}
	if diff := cmp.Diff([]string{DefaultIssuer}, audiences); diff != "" {
		t.Errorf("audiences (-want +got):\n%s", diff)
	}
	if len(user.Extra[CredentialIDKey]) != 1 || len(user.Extra[CredentialIDKey][0]) != len("JTI=")+36 {
		t.Errorf("credential id = %q, want JTI=<uuid>", user.Extra[CredentialIDKey])
	}
	got := *user
	got.Extra = map[string][]string{}
	for k, v := range user.Extra {
		if k != CredentialIDKey {
			got.Extra[k] = v
		}
	}
	want := request.User{
		Name: "system:serviceaccount:ns:sa", UID: "uid-sa",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"},
		Extra: map[string][]string{
			PodNameKey: {"pod"}, PodUIDKey: {"uid-pod"}, NodeNameKey: {"n1"}, NodeUIDKey: {"uid-n1"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}

	// The node of a pod's token only informs; the pod is what it hangs on.
	w.client.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if _, _, err := w.auth.Token(t.Context(), answer.Status.Token, nil); err != nil {
		t.Errorf("after the node went: %v", err)
	}
	w.client.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}})
	if _, _, err := w.auth.Token(t.Context(), answer.Status.Token, nil); err == nil {
		t.Error("the token outlives its pod")
	}
}

func TestTokenDiesWithWhatItIsBoundTo(t *testing.T) {
	for _, tc := range []struct {
		name string
		ref  *authenticationv1.BoundObjectReference
		// replace is put in place of the bound object: same name, another UID.
		replace func(*clientfake.Client)
	}{
		{"node", podRef("Node", "n1", ""), func(c *clientfake.Client) {
			c.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "new"}})
		}},
		{"secret", podRef("Secret", "secret", ""), func(c *clientfake.Client) {
			c.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "secret", UID: "new"}})
		}},
		{"account", nil, func(c *clientfake.Client) {
			c.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "new"}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			answer, err := w.request(t, authenticationv1.TokenRequestSpec{BoundObjectRef: tc.ref})
			if err != nil {
				t.Fatal(err)
			}
			if user, _, err := w.auth.Token(t.Context(), answer.Status.Token, nil); user == nil || err != nil {
				t.Fatalf("fresh token: %v, %v", user, err)
			}
			tc.replace(w.client)
			if _, _, err := w.auth.Token(t.Context(), answer.Status.Token, nil); err != errInvalidated {
				t.Errorf("after replacement: %v, want %v", err, errInvalidated)
			}
		})
	}
}

func TestTokenRequestRefusals(t *testing.T) {
	short, long := int64(599), int64(1<<32+1)
	for _, tc := range []struct {
		name string
		spec authenticationv1.TokenRequestSpec
		is   func(error) bool
		text string
	}{
		{"short", authenticationv1.TokenRequestSpec{ExpirationSeconds: &short}, apierrors.IsInvalid,
			`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`},
		{"long", authenticationv1.TokenRequestSpec{ExpirationSeconds: &long}, apierrors.IsInvalid,
			`TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`},
		{"kind", authenticationv1.TokenRequestSpec{BoundObjectRef: podRef("ConfigMap", "x", "")}, apierrors.IsBadRequest,
			"cannot bind token for object of type /v1, Kind=ConfigMap"},
		{"missing", authenticationv1.TokenRequestSpec{BoundObjectRef: podRef("Pod", "none", "")}, apierrors.IsNotFound, `pods "none" not found`},
		{"uid", authenticationv1.TokenRequestSpec{BoundObjectRef: podRef("Pod", "pod", "wrong")}, apierrors.IsConflict,
			`Operation cannot be fulfilled on pods "pod": the UID in the bound object reference (wrong) does not match the UID in record. The object might have been deleted and then recreated`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newWorld(t).request(t, tc.spec)
			if err == nil || !tc.is(err) || err.Error() != tc.text {
				t.Errorf("error = %v\nwant    %s", err, tc.text)
			}
		})
	}
	w := newWorld(t)
	w.client.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "theirs"}, Spec: corev1.PodSpec{ServiceAccountName: "other"}})
	if _, err := w.request(t, authenticationv1.TokenRequestSpec{BoundObjectRef: podRef("Pod", "theirs", "")}); !apierrors.IsBadRequest(err) {
		t.Errorf("pod of another account: %v, want a bad request", err)
	}
}

func TestTokenLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plain, err := w.request(t, authenticationv1.TokenRequestSpec{})
		if err != nil {
			t.Fatal(err)
		}
		mounted := int64(3607)
		extended, err := w.request(t, authenticationv1.TokenRequestSpec{ExpirationSeconds: &mounted, BoundObjectRef: podRef("Pod", "pod", "")})
		if err != nil {
			t.Fatal(err)
		}
		if got := extended.Status.ExpirationTimestamp.Sub(time.Now()); got != 3607*time.Second {
			t.Errorf("client is told to renew after %v, want 3607s", got)
		}
		time.Sleep(2 * time.Hour)
		if _, _, err := w.auth.Token(t.Context(), plain.Status.Token, nil); err == nil {
			t.Error("a token of one hour works after two")
		}
		user, _, err := w.auth.Token(t.Context(), extended.Status.Token, nil)
		if err != nil || len(user.Extra[staleTokenKey]) == 0 {
			t.Errorf("mounted token after its hour: %v, %v; want it stale but good", user, err)
		}
	})
}

func TestAudiences(t *testing.T) {
	w := newWorld(t)
	answer, err := w.request(t, authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}})
	if err != nil {
		t.Fatal(err)
	}
	if user, _, err := w.auth.Token(t.Context(), answer.Status.Token, nil); user != nil || err == nil {
		t.Errorf("token for vault opens the API server: %v, %v", user, err)
	}
	review := Posts(w.client, w.issuer, w.auth)["tokenreviews.authentication.k8s.io"]
	out, err := review(t.Context(), request.Post{Body: &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: answer.Status.Token, Audiences: []string{"vault", "more"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	status := out.(*authenticationv1.TokenReview).Status
	if !status.Authenticated || status.User.Username != "system:serviceaccount:ns:sa" || !cmp.Equal(status.Audiences, []string{"vault"}) {
		t.Errorf("review = %+v", status)
	}
	out, err = review(t.Context(), request.Post{Body: &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "garbage"}}})
	if err != nil || out.(*authenticationv1.TokenReview).Status.Authenticated {
		t.Errorf("review of garbage = %+v, %v", out, err)
	}
}

func TestForgedTokens(t *testing.T) {
	w := newWorld(t)
	other, err := NewIssuer(IssuerConfig{Key: newKey(t)})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := other.Issue(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "uid-sa"}}, nil, 0, Bound{})
	if err != nil {
		t.Fatal(err)
	}
	if user, _, err := w.auth.Token(t.Context(), forged.Token, nil); user != nil || err == nil {
		t.Errorf("a token of another key: %v, %v", user, err)
	}
}

func TestLegacyToken(t *testing.T) {
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "uid-sa"}}
	token, err := w.issuer.IssueLegacy(account, "secret")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.auth.Token(t.Context(), token, nil); err == nil {
		t.Error("a token that its secret does not hold is good")
	}
	w.client.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "secret"}, Data: map[string][]byte{"token": []byte(token)}})
	user, _, err := w.auth.Token(t.Context(), token, nil)
	if err != nil || user.Name != "system:serviceaccount:ns:sa" || user.Extra != nil {
		t.Errorf("legacy token: %+v, %v", user, err)
	}
}

func TestBootstrapToken(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: bootstrapType,
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
			"usage-bootstrap-authentication": []byte("true"), "auth-extra-groups": []byte("system:bootstrappers:worker"),
		},
	}
	c := clientfake.New(builtin.Table(), secret)
	b := NewBootstrapToken(func() client.Interface { return c })
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer abcdef.0123456789abcdef")
	user, err := b.Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	want := &request.User{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"}}
	if diff := cmp.Diff(want, user); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	expired := secret.DeepCopy()
	expired.Data["expiration"] = []byte(time.Now().Add(-time.Hour).Format(time.RFC3339))
	c.Put(expired)
	if _, err := b.Authenticate(r); err == nil {
		t.Error("an expired token is good")
	}
	for _, token := range []string{"abcdef.0123456789abcdee", "zzzzzz.0123456789abcdef"} {
		if user, _, err := b.Token(t.Context(), token, nil); user != nil || err == nil {
			t.Errorf("%s: %v, %v", token, user, err)
		}
	}
	if user, _, err := b.Token(t.Context(), "a.b.c", nil); user != nil || err != nil {
		t.Errorf("somebody else's token: %v, %v, want no opinion", user, err)
	}
}

func TestCertificate(t *testing.T) {
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour), Subject: pkix.Name{CommonName: "ca"}}
	issue := func(template, parent *x509.Certificate, pub, signer *ecdsa.PrivateKey) *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &pub.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	root := issue(ca, ca, caKey, caKey)
	leaf := func(usage x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
			Subject: pkix.Name{CommonName: "jane", Organization: []string{"dev"}},
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	c := NewCertificate(pool)
	ask := func(cert *x509.Certificate) (*request.User, error) {
		return c.Authenticate(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}})
	}
	user, err := ask(issue(leaf(x509.ExtKeyUsageClientAuth), root, key, caKey))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&request.User{Name: "jane", Groups: []string{"dev", "system:authenticated"}}, user); diff != "" {
		t.Errorf("user (-want +got):\n%s", diff)
	}
	if _, err := ask(issue(leaf(x509.ExtKeyUsageServerAuth), root, key, caKey)); err == nil {
		t.Error("a server's certificate names a user")
	}
	stranger := issue(ca, ca, key, key)
	if _, err := ask(issue(leaf(x509.ExtKeyUsageClientAuth), stranger, key, key)); err == nil {
		t.Error("a certificate of another authority names a user")
	}
	if user, err := c.Authenticate(&http.Request{TLS: &tls.ConnectionState{}}); user != nil || err != nil {
		t.Errorf("no certificate: %v, %v", user, err)
	}
}

func TestDiscovery(t *testing.T) {
	w := newWorld(t)
	handlers := w.issuer.Handlers()
	answer := httptest.NewRecorder()
	handlers["/openid/v1/jwks"].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openid/v1/jwks", nil))
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(answer.Body.Bytes(), &set); err != nil || len(set.Keys) != 1 || !set.Keys[0].IsPublic() {
		t.Errorf("key set %s: %v", answer.Body, err)
	}
	answer = httptest.NewRecorder()
	handlers["/.well-known/openid-configuration"].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	var config struct {
		Issuer string `json:"issuer"`
		URI    string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &config); err != nil || config.Issuer != DefaultIssuer || config.URI != DefaultIssuer+"/openid/v1/jwks" {
		t.Errorf("configuration %s: %v", answer.Body, err)
	}
}
