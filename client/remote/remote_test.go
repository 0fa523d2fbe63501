package remote_test

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

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
