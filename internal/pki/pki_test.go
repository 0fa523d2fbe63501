package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestIssuedCertificatesVerify(t *testing.T) {
	dir := t.TempDir()
	ca, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadAuthority(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	if ca.Hash() != again.Hash() {
		t.Error("a second load made another authority")
	}
	if info, err := os.Stat(filepath.Join(dir, "ca.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v, want mode 0600", info, err)
	}
	cert, err := again.Issue(Leaf{CommonName: "system:node:a", Organizations: []string{"system:nodes"}, Hosts: []string{"a", "10.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"a", "10.0.0.1"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: ca.Pool()}); err != nil {
			t.Errorf("verify for %s: %v", host, err)
		}
	}
	if !slices.Equal(cert.Leaf.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("organizations %v", cert.Leaf.Subject.Organization)
	}
}

func TestRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := NewAuthority("test")
		if err != nil {
			t.Fatal(err)
		}
		r := ca.Renewing(Leaf{CommonName: "x", Lifetime: 30 * time.Hour})
		first, err := r.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Hour)
		if c, _ := r.Certificate(); c != first {
			t.Error("renewed at half time, want after two thirds")
		}
		time.Sleep(6 * time.Hour)
		if c, _ := r.Certificate(); c == first {
			t.Error("not renewed with a third of the time left")
		}
	})
}
