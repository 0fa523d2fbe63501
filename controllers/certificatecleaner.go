package controllers

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
	"proa/internal/queue"
)

// How long requests are kept, as the documentation says: those decided on for an hour, others for a day.
const (
	keepDecided = time.Hour
	keepPending = 24 * time.Hour
	// keepYoung is how long every request is kept, however old its certificate may be: who made it is still at work.
	keepYoung = 10 * time.Minute
)

// certificateCleaner removes requests that nobody needs any more.
type certificateCleaner struct {
	Deps
	queue    *queue.Queue[string]
	requests client.TypedLister[*certificatesv1.CertificateSigningRequest]
}

func newCertificateCleaner(d Deps) Controller {
	return &certificateCleaner{Deps: d, queue: queue.New[string]()}
}

func (c *certificateCleaner) Run(ctx context.Context) error {
	c.requests = client.For[*certificatesv1.CertificateSigningRequest](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		if csr, ok := e.New.(*certificatesv1.CertificateSigningRequest); ok {
			c.queue.Add(csr.Name)
		}
	}, client.For[*certificatesv1.CertificateSigningRequest](c.Client).Scope())
}

func (c *certificateCleaner) sync(ctx context.Context, name string) (time.Duration, error) {
	csr, ok := c.requests.Get("", name)
	if !ok || csr.DeletionTimestamp != nil {
		return 0, nil
	}
	if left := time.Until(uselessFrom(csr)); left > 0 {
		return left, nil
	}
	err := client.For[*certificatesv1.CertificateSigningRequest](c.Client).Delete(ctx, "", name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID}})
	return 0, ignoreMissing(err)
}

// uselessFrom is when a request has been kept for long enough, or its certificate has expired.
func uselessFrom(csr *certificatesv1.CertificateSigningRequest) time.Time {
	until := csr.CreationTimestamp.Add(keepPending)
	earlier := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	for _, cond := range csr.Status.Conditions {
		// An approved request is waited for until it has its certificate.
		if cond.Type != certificatesv1.CertificateApproved || len(csr.Status.Certificate) > 0 {
			earlier(cond.LastUpdateTime.Add(keepDecided))
		}
	}
	if block, _ := pem.Decode(csr.Status.Certificate); block != nil {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			earlier(certificate.NotAfter)
		}
	}
	if young := csr.CreationTimestamp.Add(keepYoung); until.Before(young) {
		return young
	}
	return until
}
