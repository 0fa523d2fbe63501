package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/internal/pki"
)

// joinServer lets machines join with the word "secret"; it knows one node, n1 at 10.0.0.7.
func joinServer(t *testing.T, ca *pki.Authority, lifetime time.Duration) *httptest.Server {
	t.Helper()
	node := &corev1.Node{Status: corev1.NodeStatus{
		Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	config := Config{PodCIDR: netip.MustParsePrefix("10.244.0.0/16"), ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), Log: slog.New(slog.DiscardHandler)}
	server := httptest.NewUnstartedServer(joinHandler(config, ca, "secret", func(_ context.Context, name string) (*corev1.Node, error) {
		if name != "n1" {
			return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
		}
		return node, nil
	}))
	cert, err := ca.Issue(pki.Leaf{CommonName: "server", Hosts: []string{"127.0.0.1"}, Lifetime: lifetime})
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestJoin(t *testing.T) {
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	server := joinServer(t, ca, 0)
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
	for _, token := range []string{token, ""} {
		if _, err := join(t.Context(), server.URL, token, dir, "n1", []string{"10.0.0.7"}); err != nil {
			t.Errorf("a node that has joined asks again, with the token %q: %v", token, err)
		}
	}
	// The cluster was made anew: the node's certificate is of no use.
	other, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	id, err = join(t.Context(), joinServer(t, other, 0).URL, strings.Join([]string{tokenPrefix, other.Hash(), "secret"}, "."), dir, "n1", []string{"10.0.0.7"})
	if err != nil || !id.trusts(other.Hash()) {
		t.Errorf("join another cluster: %v", err)
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
	server, late := joinServer(t, ca, 0), joinServer(t, ca, -time.Minute)
	own := tokenPrefix + "." + ca.Hash() + ".secret"
	for name, c := range map[string]struct{ token, node, want string }{
		"no token":        {"", "n2", "--token is needed to join; on the server, run: proa token"},
		"another's token": {"abcdef.0123456789abcdef", "n2", "not a proa join token"},
		"wrong secret":    {tokenPrefix + "." + ca.Hash() + ".guess", "n2", "not this cluster's"},
		"wrong authority": {tokenPrefix + "." + other.Hash() + ".secret", "n2", "authority is not the one in the join token"},
		"bad name":        {own, "Not A Name", "node name"},
		"taken name":      {own, "n1", "the name n1 belongs to the node at 10.0.0.7; give this machine another with --node-name"},
		"clock":           {own, "late", "is the clock of this machine right?"},
		"nobody there":    {own, "gone", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			url := server.URL
			switch c.node {
			case "late":
				url = late.URL
			case "gone":
				url = "https://127.0.0.1:1"
			}
			_, err := join(t.Context(), url, c.token, t.TempDir(), c.node, []string{"10.0.0.8"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestRenew(t *testing.T) {
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	server, dir, addresses := joinServer(t, ca, 0), t.TempDir(), []string{"10.0.0.7"}
	id, err := join(t.Context(), server.URL, strings.Join([]string{tokenPrefix, ca.Hash(), "secret"}, "."), dir, "n1", addresses)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := id.renew(t.Context(), server.URL, dir, "n1", addresses)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := loadIdentity(dir); err != nil || kept.Certificate != newer.Certificate || newer.Certificate == id.Certificate {
		t.Errorf("the new certificate is not kept: %v", err)
	}
	if _, err := id.renew(t.Context(), server.URL, dir, "n2", addresses); err == nil || !strings.Contains(err.Error(), "system:node:n1 may not have the certificate of node n2") {
		t.Errorf("one node asks for another's: %v", err)
	}
	if id.cert, err = ca.Issue(pki.Leaf{CommonName: "system:node:n1", Organizations: []string{"dev"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := id.renew(t.Context(), server.URL, dir, "n1", addresses); err == nil {
		t.Error("a user called like a node has the node's certificate")
	}
	stranger, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	if id.cert, err = stranger.Issue(nodeLeaf("n1", addresses)); err != nil {
		t.Fatal(err)
	}
	if _, err := id.renew(t.Context(), server.URL, dir, "n1", addresses); err == nil {
		t.Error("a certificate of another authority is renewed")
	}
}

// TestRenewing checks when a node asks, and that it goes on asking.
func TestRenewing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewAuthority("test")
		if err != nil {
			t.Fatal(err)
		}
		issue := func() *identity {
			cert, err := ca.Issue(pki.Leaf{CommonName: "n", Lifetime: 90 * 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return &identity{cert: cert}
		}
		start := time.Now()
		var asked []time.Duration
		renewed := 0
		r := &renewing{ask: func(context.Context, *identity) (*identity, error) {
			asked = append(asked, time.Since(start).Round(time.Hour))
			if len(asked) == 1 {
				return nil, errors.New("the server is away")
			}
			return issue(), nil
		}}
		r.current.Store(issue())
		ctx, cancel := context.WithTimeout(t.Context(), 130*24*time.Hour)
		defer cancel()
		if err := r.run(ctx, slog.New(slog.DiscardHandler), func() { renewed++ }); err != nil {
			t.Fatal(err)
		}
		if want := []time.Duration{60 * 24 * time.Hour, 60 * 24 * time.Hour, 120 * 24 * time.Hour}; !slices.Equal(asked, want) || renewed != 2 {
			t.Errorf("asked after %v, renewed %d times; want %v, 2", asked, renewed, want)
		}
	})
}

func TestServerURL(t *testing.T) {
	for given, want := range map[string]string{
		"https://192.0.2.10:6443":  "https://192.0.2.10:6443",
		"https://192.0.2.10:7443/": "https://192.0.2.10:7443",
		"https://control.example":  "https://control.example:6443",
		"192.0.2.10":               "https://192.0.2.10:6443",
		"192.0.2.10:7443":          "https://192.0.2.10:7443",
		"[2001:db8::1]:7443":       "https://[2001:db8::1]:7443",
		"http://192.0.2.10:6443":   "",
		"https://":                 "",
		"https://192.0.2.10/api":   "",
	} {
		got, err := serverURL(given)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("serverURL(%q) = %q, %v, want %q", given, got, err, want)
		}
	}
}
