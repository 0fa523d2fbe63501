package controllers

import (
	"crypto/x509"
	"net/netip"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// Config of the controllers. The zero value means the defaults that upstream has.
type Config struct {
	// RootCA is published to every namespace as the ConfigMap kube-root-ca.crt (PEM).
	RootCA string
	// PodCIDRs are cut into one range per node; empty means nodes bring their own.
	PodCIDRs []netip.Prefix
	// NodeMonitorGracePeriod is how long a silent node counts as healthy. Default 50s.
	NodeMonitorGracePeriod time.Duration
	// TerminatedPodGCThreshold is how many finished pods are kept. Default 12500.
	TerminatedPodGCThreshold int
	// Signer issues the certificate (PEM) of an approved request for some usages, nil for none.
	Signer func(*x509.CertificateRequest, time.Duration, []certificatesv1.KeyUsage) ([]byte, error)
	// IssueToken makes the token that a Secret, given by name, keeps for an account.
	IssueToken func(account *corev1.ServiceAccount, secret string) (string, error)
}
