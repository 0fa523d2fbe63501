package controllers

import (
	"crypto/x509"
	"net/netip"
	"time"
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
	// Signer issues certificates for approved requests, nil for none.
	Signer func(*x509.CertificateRequest, time.Duration, []string) ([]byte, error)
}
