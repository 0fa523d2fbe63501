package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"proa/apiserver/authn"
)

// account makes a service account.
func (d *door) account(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	var out corev1.ServiceAccount
	d.made(t, "/api/v1/namespaces/"+namespace+"/serviceaccounts", `{"metadata":{"name":"`+name+`"}}`, &out)
	return &out
}

// token asks for a token of a service account.
func (d *door) token(t *testing.T, namespace, account, spec string) string {
	t.Helper()
	var out authenticationv1.TokenRequest
	d.made(t, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", `{"spec":`+spec+`}`, &out)
	return out.Status.Token
}

// pod makes a pod on a node, "" for none.
func (d *door) pod(t *testing.T, namespace, name, node, more string) *corev1.Pod {
	t.Helper()
	var out corev1.Pod
	d.made(t, "/api/v1/namespaces/"+namespace+"/pods", fmt.Sprintf(
		`{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"}]%s}}`, name, node, more), &out)
	return &out
}

func keyID(t *testing.T, key *ecdsa.PublicKey) string {
	sum := sha256.Sum256(publicDER(t, key))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Tokens with everything right but one thing.
func testForgedTokens(t *testing.T, d *door) {
	d.namespace(t, "forged")
	account := d.account(t, "forged", "robot")
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	now, id := time.Now(), keyID(t, &d.key.PublicKey)
	type claims = map[string]any
	of := func(name, uid string) claims {
		return claims{"namespace": "forged", "serviceaccount": claims{"name": name, "uid": uid}}
	}
	with := func(changes claims) claims {
		out := claims{
			"iss": authn.DefaultIssuer, "sub": "system:serviceaccount:forged:robot", "aud": []string{authn.DefaultIssuer},
			"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(), "jti": "x",
			"kubernetes.io": of("robot", string(account.UID)),
		}
		for k, v := range changes {
			if v == nil {
				delete(out, k)
			} else {
				out[k] = v
			}
		}
		return out
	}
	es := func(changes claims) string { return sign(jose.ES256, d.key, id, with(changes)) }
	good := es(nil)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	payload, err := json.Marshal(with(claims{"sub": "system:serviceaccount:kube-system:namespace-controller"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.who(t, d.bearer(t, good)); !strings.Contains(got, `"username":"system:serviceaccount:forged:robot"`) {
		t.Fatalf("the good token is of %s", got)
	}
	for name, token := range map[string]string{
		"expired":             es(claims{"exp": now.Add(-time.Hour).Unix()}),
		"never expires":       es(claims{"exp": nil}),
		"not yet valid":       es(claims{"nbf": now.Add(time.Hour).Unix()}),
		"other audience":      es(claims{"aud": []string{"vault"}}),
		"no audience":         es(claims{"aud": nil}),
		"other issuer":        es(claims{"iss": "https://example.com"}),
		"no issuer":           es(claims{"iss": nil}),
		"other subject":       es(claims{"sub": "system:serviceaccount:kube-system:namespace-controller"}),
		"no account":          es(claims{"kubernetes.io": nil}),
		"missing account":     es(claims{"sub": "system:serviceaccount:forged:ghost", "kubernetes.io": of("ghost", "1")}),
		"recreated account":   es(claims{"kubernetes.io": of("robot", "another")}),
		"missing pod":         es(claims{"kubernetes.io": claims{"namespace": "forged", "serviceaccount": of("robot", string(account.UID))["serviceaccount"], "pod": claims{"name": "ghost", "uid": "1"}}}),
		"other key":           sign(jose.ES256, stranger, keyID(t, &stranger.PublicKey), with(nil)),
		"other key, known id": sign(jose.ES256, stranger, id, with(nil)),
		"no key id":           sign(jose.ES256, stranger, "", with(nil)),
		"public key as secret": sign(jose.HS256, publicDER(t, &d.key.PublicKey), id,
			with(nil)),
		"no algorithm":    encode([]byte(`{"alg":"none","kid":"`+id+`"}`)) + "." + parts[1] + ".",
		"changed payload": parts[0] + "." + encode(payload) + "." + parts[2],
		"cut signature":   good[:len(good)-4],
		"no signature":    parts[0] + "." + parts[1] + ".",
		"legacy issuer":   es(claims{"iss": "kubernetes/serviceaccount"}),
	} {
		t.Run(name, func(t *testing.T) {
			d.wants(t, unauthorizedOutcome, d.bearer(t, token), whoami, "{}")
			// What is refused once is remembered by nobody as good.
			d.wants(t, unauthorizedOutcome, d.bearer(t, token), whoami, "{}")
		})
	}
}

func testBoundTokens(t *testing.T, d *door) {
	d.namespace(t, "bound")
	account := d.account(t, "bound", "robot")
	const accounts, pods = "/api/v1/namespaces/bound/serviceaccounts", "/api/v1/namespaces/bound/pods"
	pod := d.pod(t, "bound", "p", "", `,"serviceAccountName":"robot"`)

	plain := d.bearer(t, d.token(t, "bound", "robot", "{}"))
	ofPod := d.bearer(t, d.token(t, "bound", "robot", `{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}`))
	vault := d.bearer(t, d.token(t, "bound", "robot", `{"audiences":["vault"]}`))

	var user authenticationv1.UserInfo
	if err := json.Unmarshal([]byte(d.who(t, ofPod)), &user); err != nil {
		t.Fatal(err)
	}
	if user.Username != "system:serviceaccount:bound:robot" || user.UID != string(account.UID) ||
		fmt.Sprint(user.Groups) != "[system:serviceaccounts system:serviceaccounts:bound system:authenticated]" {
		t.Errorf("the pod's token is of %+v", user)
	}
	if got := fmt.Sprint(user.Extra["authentication.kubernetes.io/pod-name"], user.Extra["authentication.kubernetes.io/pod-uid"]); got != fmt.Sprintf("[p] [%s]", pod.UID) {
		t.Errorf("the pod's token names the pod %s", got)
	}
	d.wants(t, unauthorizedOutcome, vault, whoami, "{}")

	// A token has the rights of its account, found through the groups as well.
	const refused = `403 Forbidden: pods is forbidden: User "system:serviceaccount:bound:robot" cannot list resource "pods" in API group "" in the namespace "bound"`
	d.wants(t, refused, plain, "GET "+pods, nil)
	d.bind(t, "bound", "view", "ClusterRole", "view", "group:system:serviceaccounts:bound")
	d.wants(t, "200", plain, "GET "+pods, nil)
	d.wants(t, "200", ofPod, "GET "+pods, nil)

	d.wants(t, `400 BadRequest: cannot bind token for serviceaccount "default" to pod running with different serviceaccount name.`,
		d.admin, "POST "+accounts+"/default/token", `{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}}`)
	d.wants(t, `404 NotFound: serviceaccounts "ghost" not found`, d.admin, "POST "+accounts+"/ghost/token", `{"spec":{}}`)
	d.wants(t, `403 Forbidden: serviceaccounts "robot" is forbidden: User "system:serviceaccount:bound:robot" cannot create resource "serviceaccounts/token" in API group "" in the namespace "bound"`,
		plain, "POST "+accounts+"/robot/token", `{"spec":{}}`)

	d.wants(t, "200", d.admin, "DELETE "+pods+"/p?gracePeriodSeconds=0", nil)
	d.wants(t, unauthorizedOutcome, ofPod, whoami, "{}")
	d.wants(t, "201", plain, whoami, "{}")
	d.pod(t, "bound", "p", "", `,"serviceAccountName":"robot"`)
	d.wants(t, unauthorizedOutcome, ofPod, whoami, "{}")

	d.wants(t, "200", d.admin, "DELETE "+accounts+"/robot", nil)
	d.wants(t, unauthorizedOutcome, plain, whoami, "{}")
	d.account(t, "bound", "robot")
	d.wants(t, unauthorizedOutcome, plain, whoami, "{}")
}

func testBootstrapToken(t *testing.T, d *door) {
	secret := func(id, more string) {
		d.made(t, "/api/v1/namespaces/kube-system/secrets", fmt.Sprintf(`{"metadata":{"name":"bootstrap-token-%s"},"type":"bootstrap.kubernetes.io/token",
			"stringData":{"token-id":"%[1]s","token-secret":"0123456789abcdef"%s}}`, id, more), nil)
	}
	const usable = `,"usage-bootstrap-authentication":"true"`
	secret("aaaaaa", usable+`,"auth-extra-groups":"system:bootstrappers:lab"`)
	secret("bbbbbb", "")
	secret("cccccc", usable+`,"expiration":"2020-01-01T00:00:00Z"`)
	if got, want := d.who(t, d.bearer(t, "aaaaaa.0123456789abcdef")),
		`{"username":"system:bootstrap:aaaaaa","groups":["system:bootstrappers","system:bootstrappers:lab","system:authenticated"]}`; got != want {
		t.Errorf("the token is of %s, want %s", got, want)
	}
	for _, token := range []string{"aaaaaa.0123456789abcdee", "bbbbbb.0123456789abcdef", "cccccc.0123456789abcdef", "dddddd.0123456789abcdef"} {
		d.wants(t, unauthorizedOutcome, d.bearer(t, token), whoami, "{}")
	}
}
