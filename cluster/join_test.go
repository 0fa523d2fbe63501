package cluster

import (
	"crypto/tls"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"proa/internal/pki"
)

func TestJoin(t *testing.T) {
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{PodCIDR: netip.MustParsePrefix("10.244.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewUnstartedServer(joinHandler(config, ca, "secret"))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: ca.Renewing(pki.Leaf{CommonName: "server", Hosts: []string{"127.0.0.1"}}).ForServer}
	server.StartTLS()
	defer server.Close()
	// The test server has a certificate of its own, which the configuration would prefer.
	server.TLS.Certificates = nil

	dir := t.TempDir()
	token := strings.Join([]string{tokenPrefix, ca.Hash(), "secret"}, ".")
	id, err := join(t.Context(), server.URL, token, dir, "n1", []string{"10.0.0.7"})
	if err != nil {
		t.Fatal(err)
	}
	if id.cert.Leaf.Subject.CommonName != "system:node:n1" || id.cert.Leaf.VerifyHostname("10.0.0.7") != nil {
		t.Errorf("certificate for %v, addresses %v", id.cert.Leaf.Subject, id.cert.Leaf.IPAddresses)
	}
	if id.ClusterDNS != netip.MustParseAddr("10.96.0.10") {
		t.Errorf("DNS at %v", id.ClusterDNS)
	}
	server.Close()
	if _, err := join(t.Context(), server.URL, token, dir, "n1", []string{"10.0.0.7"}); err != nil {
		t.Errorf("a node that has joined asks again: %v", err)
	}
}

func TestJoinRefusals(t *testing.T) {
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewUnstartedServer(joinHandler(config, ca, "secret"))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: ca.Renewing(pki.Leaf{CommonName: "server", Hosts: []string{"127.0.0.1"}}).ForServer}
	server.StartTLS()
	defer server.Close()
	server.TLS.Certificates = nil
	for name, c := range map[string]struct{ token, node, want string }{
		"no token":        {"", "n1", "not a proa join token"},
		"wrong secret":    {tokenPrefix + "." + ca.Hash() + ".guess", "n1", "not this cluster's"},
		"wrong authority": {tokenPrefix + "." + other.Hash() + ".secret", "n1", "authority is not the one in the join token"},
		"bad name":        {tokenPrefix + "." + ca.Hash() + ".secret", "Not A Name", "node name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := join(t.Context(), server.URL, c.token, t.TempDir(), c.node, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
