package controllers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

func TestSignerRules(t *testing.T) {
	const client, server, digital, encipherment = certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment
	node := pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}}
	usages := func(u ...certificatesv1.KeyUsage) []certificatesv1.KeyUsage { return u }
	for name, test := range map[string]struct {
		signer  string
		request x509.CertificateRequest
		usages  []certificatesv1.KeyUsage
		want    error
	}{
		"client":                 {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{}, usages(client), nil},
		"client, all usages":     {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{}, usages(client, digital, encipherment), nil},
		"client as a server":     {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{}, usages(client, server), errUsages},
		"client for nothing":     {certificatesv1.KubeAPIServerClientSignerName, x509.CertificateRequest{}, usages(digital), errUsages},
		"node":                   {certificatesv1.KubeAPIServerClientKubeletSignerName, x509.CertificateRequest{Subject: node}, usages(client, digital), nil},
		"node without signature": {certificatesv1.KubeAPIServerClientKubeletSignerName, x509.CertificateRequest{Subject: node}, usages(client), errUsages},
		"node with a name":       {certificatesv1.KubeAPIServerClientKubeletSignerName, x509.CertificateRequest{Subject: node, DNSNames: []string{"n"}}, usages(client, digital), errNames},
		"node of another group": {certificatesv1.KubeAPIServerClientKubeletSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: node.CommonName, Organization: []string{"system:nodes", "system:masters"}}}, usages(client, digital), errOrganization},
		"no node": {certificatesv1.KubeAPIServerClientKubeletSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "n", Organization: node.Organization}}, usages(client, digital), errCommonName},
		"node's server":             {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node, IPAddresses: []net.IP{{10, 0, 0, 1}}}, usages(server, digital, encipherment), nil},
		"node's server, no address": {certificatesv1.KubeletServingSignerName, x509.CertificateRequest{Subject: node}, usages(server, digital), errNoNames},
		"node's server, email": {certificatesv1.KubeletServingSignerName,
			x509.CertificateRequest{Subject: node, DNSNames: []string{"n"}, EmailAddresses: []string{"n@x"}}, usages(server, digital), errEmail},
	} {
		if got := signerRule(test.signer)(&test.request, test.usages); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if signerRule("example.com/other") != nil {
		t.Error("there is a rule for somebody else's signer")
	}
}

// TestCertificateCleaner checks how long requests are kept.
func TestCertificateCleaner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		certificate := func(lifetime time.Duration) []byte {
			template := &x509.Certificate{NotAfter: time.Now().Add(lifetime)}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		}
		c := startCluster(t, "certificatesigningrequest-cleaner-controller")
		requests := client.For[*certificatesv1.CertificateSigningRequest](c)
		for name, test := range map[string]struct {
			decision certificatesv1.RequestConditionType
			lifetime time.Duration // of the certificate, 0 for none
			kept     time.Duration
		}{
			"pending":  {"", 0, 24 * time.Hour},
			"denied":   {certificatesv1.CertificateDenied, 0, time.Hour},
			"failed":   {certificatesv1.CertificateFailed, 0, time.Hour},
			"approved": {certificatesv1.CertificateApproved, 0, 24 * time.Hour},
			"issued":   {certificatesv1.CertificateApproved, 24 * time.Hour, time.Hour},
			"expired":  {certificatesv1.CertificateApproved, 30 * time.Minute, 30 * time.Minute},
			"old":      {certificatesv1.CertificateApproved, time.Minute, 10 * time.Minute},
		} {
			csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}}
			if test.decision != "" {
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: test.decision, Status: corev1.ConditionTrue, LastUpdateTime: metav1.Now()}}
			}
			if test.lifetime > 0 {
				csr.Status.Certificate = certificate(test.lifetime)
			}
			c.Put(csr)
			start := time.Now()
			time.Sleep(test.kept - 2*time.Second)
			synctest.Wait()
			if _, err := requests.Get(context.Background(), "", name); err != nil {
				t.Errorf("%s: after %v: %v", name, time.Since(start), err)
			}
			time.Sleep(4 * time.Second)
			synctest.Wait()
			if _, err := requests.Get(context.Background(), "", name); !apierrors.IsNotFound(err) {
				t.Errorf("%s: after %v it is still there (%v)", name, time.Since(start), err)
			}
		}
	})
}
