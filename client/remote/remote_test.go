package remote_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api/builtin"
	"proa/apiserver"
	"proa/client"
	"proa/client/clienttest"
	"proa/client/remote"
	"proa/store"
)

// serve returns a client of a new API server, over HTTP/2 with TLS.
func serve(t *testing.T) *remote.Client {
	t.Helper()
	table := builtin.Table()
	st, err := store.Open(t.Context(), store.Config{Decode: apiserver.Decode(table)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := apiserver.New(apiserver.Config{Table: table, Store: st, Log: log, CheckImmutable: true})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s.Handler())
	h.EnableHTTP2 = true
	h.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	roots := h.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	return remote.New(remote.Config{Table: table, Server: h.URL, TLS: &tls.Config{RootCAs: roots}, UserAgent: "test", Log: log})
}

func TestContract(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Interface { return serve(t) })
}

func TestUserAgent(t *testing.T) {
	made, err := client.For[*corev1.Namespace](serve(t)).Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range made.ManagedFields {
		if m.Manager != "test" {
			t.Errorf("manager is %q, want the client's name", m.Manager)
		}
	}
	if len(made.ManagedFields) == 0 {
		t.Error("nobody manages the object")
	}
}
