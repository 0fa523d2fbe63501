package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// requested makes a signing request as the sender and returns the key it is for.
func (d *door) requested(t *testing.T, s *sender, name, signer string, subject pkix.Name, dns []string, seconds int32, usages ...certificatesv1.KeyUsage) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject, DNSNames: dns}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr := certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: signer, Usages: usages, ExpirationSeconds: &seconds,
		Username: "somebody-else", Groups: []string{"system:masters"}, // not for the client to say
	}}
	csr.Name = name
	d.wants(t, "201", s, "POST "+requestsPath, &csr)
	return key
}

// request waits until a signing request is as wanted.
func (d *door) request(t *testing.T, name string, wanted func(*certificatesv1.CertificateSigningRequest) bool) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		code, answer := d.send(t, d.admin, "GET "+requestsPath+"/"+name, nil)
		var csr certificatesv1.CertificateSigningRequest
		if err := json.Unmarshal(answer, &csr); err != nil || code != 200 {
			t.Fatalf("%d %s: %v", code, answer, err)
		}
		if wanted(&csr) {
			return &csr
		}
		if time.Now().After(deadline) {
			t.Fatalf("signing request %s is still %+v", name, csr.Status)
		}
	}
}

func issued(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) > 0
}

func (d *door) approve(t *testing.T, name string) {
	t.Helper()
	csr := d.request(t, name, func(*certificatesv1.CertificateSigningRequest) bool { return true })
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	})
	d.wants(t, "200", d.admin, "PUT "+requestsPath+"/"+name+"/approval", csr)
}

func testSigningRequests(t *testing.T, d *door) {
	const client, digital = certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature
	// A person's certificate: approved by an administrator, good for what it says and no longer.
	key := d.requested(t, d.admin, "person", certificatesv1.KubeAPIServerClientSignerName,
		pkix.Name{CommonName: "signed-jane", Organization: []string{"signed-dev"}}, nil, 3600, client, digital)
	d.approve(t, "person")
	csr := d.request(t, "person", issued)
	if csr.Spec.Username != "admin" || !slices.Equal(csr.Spec.Groups, []string{"system:masters", "system:authenticated"}) {
		t.Errorf("the request is one of %s, %v", csr.Spec.Username, csr.Spec.Groups)
	}
	block, _ := pem.Decode(csr.Status.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(certificate.NotAfter); left > time.Hour || left < 50*time.Minute {
		t.Errorf("the certificate is valid for %v, asked for was an hour", left)
	}
	if certificate.IsCA {
		t.Error("the certificate is one of an authority")
	}
	sender := d.certificate(t, &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
	if got, want := d.who(t, sender), `{"username":"signed-jane","groups":["signed-dev","system:authenticated"]}`; got != want {
		t.Errorf("the certificate's owner is %s, want %s", got, want)
	}

	// A node's: approved by nobody but the permission of who asks.
	d.bind(t, "", "signed-nodes", "ClusterRole", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "group:system:nodes")
	node := pkix.Name{CommonName: "system:node:signed-n", Organization: []string{"system:nodes"}}
	d.requested(t, d.user(t, node.CommonName, "system:nodes"), "own", certificatesv1.KubeAPIServerClientKubeletSignerName, node, nil, 3600, client, digital)
	csr = d.request(t, "own", issued)
	if c := csr.Status.Conditions[0]; c.Reason != "AutoApproved" || c.Message != "Auto approving self kubelet client certificate after SubjectAccessReview." {
		t.Errorf("approved with %+v", c)
	}

	// Approved although the signer must not sign it.
	d.requested(t, d.admin, "wrong", certificatesv1.KubeletServingSignerName, pkix.Name{CommonName: "me"}, []string{"me"}, 3600, certificatesv1.UsageServerAuth, digital)
	d.approve(t, "wrong")
	csr = d.request(t, "wrong", func(csr *certificatesv1.CertificateSigningRequest) bool { return len(csr.Status.Conditions) > 1 })
	if c := csr.Status.Conditions[1]; c.Type != certificatesv1.CertificateFailed || c.Reason != "SignerValidationFailure" || !strings.Contains(c.Message, "system:nodes") {
		t.Errorf("the request ended with %+v", c)
	}
	if issued(csr) {
		t.Error("it has a certificate")
	}

	// A signer of somebody else is left alone.
	d.requested(t, d.admin, "foreign", "example.com/signer", pkix.Name{CommonName: "me"}, nil, 3600, client)
	d.approve(t, "foreign")
	if csr := d.request(t, "foreign", func(*certificatesv1.CertificateSigningRequest) bool { return true }); issued(csr) {
		t.Error("a request to another signer got a certificate")
	}
}

func testSecretTokens(t *testing.T, d *door) {
	d.namespace(t, "kept")
	account := d.account(t, "kept", "robot")
	const path = "/api/v1/namespaces/kept/secrets"
	secret := func(wanted func(*corev1.Secret) bool) *corev1.Secret {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			code, answer := d.send(t, d.admin, "GET "+path+"/robot", nil)
			var s corev1.Secret
			if code != 200 {
				s.Name = ""
			} else if err := json.Unmarshal(answer, &s); err != nil {
				t.Fatal(err)
			}
			if wanted(&s) {
				return &s
			}
			if time.Now().After(deadline) {
				t.Fatalf("the secret is still %s", answer)
			}
		}
	}
	d.made(t, path, `{"metadata":{"name":"robot","annotations":{"kubernetes.io/service-account.name":"robot"}},"type":"kubernetes.io/service-account-token"}`, nil)
	s := secret(func(s *corev1.Secret) bool { return len(s.Data["token"]) > 0 })
	if got := s.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
		t.Errorf("the secret names account %q, want %q", got, account.UID)
	}
	if string(s.Data["namespace"]) != "kept" || !bytes.Equal(s.Data["ca.crt"], d.ca.PEM()) {
		t.Errorf("the secret has namespace %q, certificate %q", s.Data["namespace"], s.Data["ca.crt"])
	}
	robot := d.bearer(t, string(s.Data["token"]))
	if got := d.who(t, robot); !strings.Contains(got, `"username":"system:serviceaccount:kept:robot"`) {
		t.Errorf("the token is of %s", got)
	}
	d.wants(t, "200", d.admin, "DELETE /api/v1/namespaces/kept/serviceaccounts/robot", nil)
	secret(func(s *corev1.Secret) bool { return s.Name == "" })
	d.wants(t, unauthorizedOutcome, robot, whoami, "{}")
}
