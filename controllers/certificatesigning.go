package controllers

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api/certificates"
	"proa/client"
	"proa/internal/queue"
)

// What is wrong with a request, in the words that its condition Failed gets.
var (
	errNotPEM       = errors.New("PEM block type must be CERTIFICATE REQUEST")
	errOrganization = errors.New("subject organization is not system:nodes")
	errCommonName   = errors.New("subject common name does not begin with system:node:")
	errEmail        = errors.New("email subjectAltNames are not allowed")
	errURI          = errors.New("URI subjectAltNames are not allowed")
	errNames        = errors.New("DNS and IP subjectAltNames are not allowed")
	errNoNames      = errors.New("DNS or IP subjectAltName is required")
	errUsages       = errors.New("invalid usages")
)

// certificateLifetime is how long a certificate is valid for whose request does not say.
const certificateLifetime = 365 * 24 * time.Hour

// certificateSigning issues the certificates of approved requests for the signers of kubernetes.io. The rules of each
// are those of the page "Certificates and Certificate Signing Requests" of the Kubernetes documentation.
type certificateSigning struct {
	Deps
	queue    *queue.Queue[string]
	requests client.TypedLister[*certificatesv1.CertificateSigningRequest]
}

func newCertificateSigning(d Deps) Controller {
	return &certificateSigning{Deps: d, queue: queue.New[string]()}
}

func (c *certificateSigning) Run(ctx context.Context) error {
	c.requests = client.For[*certificatesv1.CertificateSigningRequest](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		if csr, ok := e.New.(*certificatesv1.CertificateSigningRequest); ok && c.unsigned(csr) {
			c.queue.Add(csr.Name)
		}
	}, client.For[*certificatesv1.CertificateSigningRequest](c.Client).Scope())
}

// unsigned reports whether a request waits for a certificate from here.
func (c *certificateSigning) unsigned(csr *certificatesv1.CertificateSigningRequest) bool {
	return c.Config.Signer != nil && len(csr.Status.Certificate) == 0 && signerRule(csr.Spec.SignerName) != nil &&
		certificates.HasCondition(csr, certificatesv1.CertificateApproved) && !certificates.HasCondition(csr, certificatesv1.CertificateFailed)
}

// signerRule returns the check of a signer's requests, nil for signers of somebody else.
func signerRule(name string) func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error {
	switch name {
	case certificatesv1.KubeAPIServerClientSignerName:
		return func(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
			return checkUsages(usages, []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment)
		}
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return func(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
			return checkNodeRequest(r, usages, certificatesv1.UsageClientAuth)
		}
	case certificatesv1.KubeletServingSignerName:
		return func(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
			return checkNodeRequest(r, usages, certificatesv1.UsageServerAuth)
		}
	case "kubernetes.io/legacy-unknown":
		return func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error { return nil }
	}
	return nil
}

func (c *certificateSigning) sync(ctx context.Context, name string) (time.Duration, error) {
	csr, ok := c.requests.Get("", name)
	if !ok || !c.unsigned(csr) {
		return 0, nil
	}
	next := csr.DeepCopy()
	request, err := parseRequest(csr)
	if err == nil {
		err = errors.Join(request.CheckSignature(), signerRule(csr.Spec.SignerName)(request, csr.Spec.Usages))
	}
	if err != nil {
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
			LastUpdateTime: metav1.Now(),
		})
	} else {
		lifetime := certificateLifetime
		if n := csr.Spec.ExpirationSeconds; n != nil {
			lifetime = min(lifetime, time.Duration(*n)*time.Second)
		}
		if next.Status.Certificate, err = c.Config.Signer(request, lifetime, csr.Spec.Usages); err != nil {
			return 0, err
		}
	}
	_, err = client.For[*certificatesv1.CertificateSigningRequest](c.Client).UpdateStatus(ctx, next)
	return 0, ignoreMissing(err)
}
