package admission

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"proa/apiserver/authz"
	"proa/apiserver/request"
	"proa/client"
)

// signers asks who may act for a signer.
type signers struct{ authorizers authz.Union }

func newSigners(c client.Interface) signers {
	return signers{authz.Union{authz.Masters{}, authz.NewRBAC(c)}}
}

// may asks for the signer itself, then for all of its domain ("example.com/*").
func (s signers) may(ctx context.Context, user *request.User, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, domain + "/*"} {
		d, _, _ := s.authorizers.Authorize(ctx, user, &request.Info{
			IsResource: true, Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		})
		if d == authz.Allow {
			return true
		}
	}
	return false
}

// CertificateApproval lets only those approve a request who may do so for its signer.
type CertificateApproval struct {
	Pass
	signers signers
}

// NewCertificateApproval returns the plugin.
func NewCertificateApproval(c client.Interface) *CertificateApproval {
	return &CertificateApproval{signers: newSigners(c)}
}

// Name of the plugin.
func (*CertificateApproval) Name() string { return "CertificateApproval" }

// Validate asks for the verb approve on the signer.
func (p *CertificateApproval) Validate(ctx context.Context, a *Attributes) error {
	if !on(a, "certificatesigningrequests.certificates.k8s.io", "approval", Update) {
		return nil
	}
	signer := a.OldObject.(*certificatesv1.CertificateSigningRequest).Spec.SignerName
	if !p.signers.may(ctx, a.User, "approve", signer) {
		return forbid(a, fmt.Errorf("user not permitted to approve requests with signerName %q", signer))
	}
	return nil
}

// CertificateSigning lets only those issue a certificate who may do so for its signer.
type CertificateSigning struct {
	Pass
	signers signers
}

// NewCertificateSigning returns the plugin.
func NewCertificateSigning(c client.Interface) *CertificateSigning {
	return &CertificateSigning{signers: newSigners(c)}
}

// Name of the plugin.
func (*CertificateSigning) Name() string { return "CertificateSigning" }

// Validate asks for the verb sign on the signer when the certificate or the conditions change.
func (p *CertificateSigning) Validate(ctx context.Context, a *Attributes) error {
	if !on(a, "certificatesigningrequests.certificates.k8s.io", "status", Update) {
		return nil
	}
	csr, old := a.Object.(*certificatesv1.CertificateSigningRequest), a.OldObject.(*certificatesv1.CertificateSigningRequest)
	if slices.Equal(csr.Status.Certificate, old.Status.Certificate) && equality.Semantic.DeepEqual(csr.Status.Conditions, old.Status.Conditions) {
		return nil
	}
	if !p.signers.may(ctx, a.User, "sign", old.Spec.SignerName) {
		return forbid(a, fmt.Errorf("user not permitted to sign requests with signerName %q", old.Spec.SignerName))
	}
	return nil
}

// CertificateSubjectRestriction lets nobody ask for a certificate of the all-powerful group.
type CertificateSubjectRestriction struct{ Pass }

// Name of the plugin.
func (CertificateSubjectRestriction) Name() string { return "CertificateSubjectRestriction" }

// Validate looks at the subject of requests for API server clients.
func (CertificateSubjectRestriction) Validate(_ context.Context, a *Attributes) error {
	if !on(a, "certificatesigningrequests.certificates.k8s.io", "", Create) {
		return nil
	}
	csr := a.Object.(*certificatesv1.CertificateSigningRequest)
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	parsed, err := parseRequest(csr.Spec.Request)
	if err != nil {
		return forbid(a, fmt.Errorf("failed to parse CSR: %w", err))
	}
	if slices.Contains(parsed.Subject.Organization, request.Masters) {
		return forbid(a, fmt.Errorf("use of %s signer with %s group is not allowed", csr.Spec.SignerName, request.Masters))
	}
	return nil
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
