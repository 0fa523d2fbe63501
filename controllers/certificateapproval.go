package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api/certificates"
	"proa/client"
	"proa/internal/queue"
)

// certificateApproval approves the client certificates that nodes ask for, when whoever asks has the permission: the
// subresource nodeclient, or selfnodeclient for a node that renews its own.
type certificateApproval struct {
	Deps
	queue    *queue.Queue[string]
	requests client.TypedLister[*certificatesv1.CertificateSigningRequest]
}

func newCertificateApproval(d Deps) Controller {
	return &certificateApproval{Deps: d, queue: queue.New[string]()}
}

func (c *certificateApproval) Run(ctx context.Context) error {
	c.requests = client.For[*certificatesv1.CertificateSigningRequest](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		if csr, ok := e.New.(*certificatesv1.CertificateSigningRequest); ok && undecided(csr) {
			c.queue.Add(csr.Name)
		}
	}, client.For[*certificatesv1.CertificateSigningRequest](c.Client).Scope())
}

func (c *certificateApproval) sync(ctx context.Context, name string) (time.Duration, error) {
	csr, ok := c.requests.Get("", name)
	if !ok || !undecided(csr) || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return 0, nil
	}
	request, err := parseRequest(csr)
	if err != nil || checkNodeRequest(request, csr.Spec.Usages, certificatesv1.UsageClientAuth) != nil {
		return 0, nil // for people to look at
	}
	tries := []struct{ subresource, message string }{
		{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."},
	}
	if csr.Spec.Username == request.Subject.CommonName {
		tries = slices.Insert(tries, 0, struct{ subresource, message string }{
			"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.",
		})
	}
	for _, try := range tries {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: map[string]authorizationv1.ExtraValue{},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "create", Subresource: try.subresource, Version: "*",
			},
		}}
		for k, v := range csr.Spec.Extra {
			review.Spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
		answer, err := client.For[*authorizationv1.SubjectAccessReview](c.Client).Post(ctx, "", "", "", review)
		if err != nil {
			return 0, err
		}
		if !answer.(*authorizationv1.SubjectAccessReview).Status.Allowed {
			continue
		}
		next := csr.DeepCopy()
		next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved", Message: try.message,
			LastUpdateTime: metav1.Now(),
		})
		requests := client.For[*certificatesv1.CertificateSigningRequest](c.Client)
		_, err = c.Client.Update(ctx, requests.Kind(), "approval", next, metav1.UpdateOptions{})
		return 0, ignoreMissing(err)
	}
	return 0, nil
}

// undecided reports whether a request waits for an approval or a denial.
func undecided(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 &&
		!certificates.HasCondition(csr, certificatesv1.CertificateApproved) && !certificates.HasCondition(csr, certificatesv1.CertificateDenied)
}

func parseRequest(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return nil, errNotPEM
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// checkNodeRequest checks what the API documents of the two signers for nodes: the subject is a node, the usages are those
// of a client or a server. A nil error means a request that may be signed.
func checkNodeRequest(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage, role certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(request.Subject.Organization, []string{"system:nodes"}):
		return errOrganization
	case !strings.HasPrefix(request.Subject.CommonName, "system:node:"):
		return errCommonName
	case len(request.EmailAddresses) > 0:
		return errEmail
	case len(request.URIs) > 0:
		return errURI
	case role == certificatesv1.UsageClientAuth && len(request.DNSNames)+len(request.IPAddresses) > 0:
		return errNames
	case role == certificatesv1.UsageServerAuth && len(request.DNSNames)+len(request.IPAddresses) == 0:
		return errNoNames
	}
	return checkUsages(usages, []certificatesv1.KeyUsage{role, certificatesv1.UsageDigitalSignature}, certificatesv1.UsageKeyEncipherment)
}

// checkUsages checks that all required usages are asked for and nothing beyond the optional ones.
func checkUsages(usages, required []certificatesv1.KeyUsage, optional ...certificatesv1.KeyUsage) error {
	for _, r := range required {
		if !slices.Contains(usages, r) {
			return errUsages
		}
	}
	for _, u := range usages {
		if !slices.Contains(required, u) && !slices.Contains(optional, u) {
			return errUsages
		}
	}
	return nil
}
