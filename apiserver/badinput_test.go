package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa/api/builtin"
	"proa/apiserver/admission"
	"proa/apiserver/authn"
	"proa/apiserver/authz"
	"proa/apiserver/connect"
	"proa/apiserver/eviction"
	"proa/apiserver/request"
	"proa/client"
	"proa/store"
)

// badInput is a request that must be refused, with the answer that it must get.
type badInput struct {
	name                      string
	method, path, contentType string
	body                      string
	code                      int
	reason                    metav1.StatusReason
	message                   string // part of it
	accept                    string
	chunked                   bool // the length of the body is not announced
}

// panics counts what the server logs of panics.
type panics struct {
	slog.Handler
	n *atomic.Int64
}

func (p panics) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "request panicked" {
		p.n.Add(1)
		return p.Handler.Handle(ctx, r)
	}
	return nil
}

// newFullServer is a server with everything that takes part in writes, and with some objects. The number counts panics.
func newFullServer(t testing.TB) (*Server, *atomic.Int64) {
	t.Helper()
	table := builtin.Table()
	st, err := store.Open(t.Context(), store.Config{Decode: Decode(table)})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := authn.NewIssuer(authn.IssuerConfig{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	count := &atomic.Int64{}
	log := slog.New(panics{slog.NewTextHandler(t.Output(), nil), count})
	var s *Server
	late := func() client.Interface {
		return s.Client(&request.User{Name: "test", Groups: []string{request.Masters}}, "test")
	}
	s, err = New(Config{
		Log: log, Table: table, Store: st, CheckImmutable: true, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"),
		Admission: func(c client.Interface) admission.Chain { return admission.Default(c, log) },
		Posts: func(c client.Interface) map[string]request.Poster {
			posts := authn.Posts(c, issuer)
			maps.Copy(posts, authz.Posts([]authz.Authorizer{authz.Masters{}}))
			maps.Copy(posts, eviction.Posts(c))
			return posts
		},
		Connect: connect.New(connect.Config{Client: late}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.dispatch.close()
		if err := s.encodings.seals.all(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, made := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"metadata":{"name":"default"}}`},
		{"/api/v1/namespaces", `{"metadata":{"name":"ending"}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"n1"}}`},
		{namespaced + "/serviceaccounts", `{"metadata":{"name":"default"}}`},
		{configMaps, `{"metadata":{"name":"cm","uid":"ignored"},"data":{"k":"v"}}`},
		{namespaced + "/secrets", `{"metadata":{"name":"fixed"},"immutable":true,"stringData":{"k":"v"}}`},
		{pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
		{pods, `{"metadata":{"name":"bound"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
		{pods + "/bound/binding", `{"metadata":{"name":"bound"},"target":{"kind":"Node","name":"n1"}}`},
		{services, `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.96.0.77","ports":[{"port":80}]}}`},
		{deployments, deployment("d", "a", "a")},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", roleBinding("view")},
		{namespaced + "/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"persistentvolumeclaims":"0"}}}`},
	} {
		if code, body := call(s, "POST", made.path, typeJSON, made.body); code != 201 {
			t.Fatalf("POST %s: %d %s", made.path, code, body)
		}
	}
	if code, body := call(s, "DELETE", "/api/v1/namespaces/ending", "", ""); code != 200 {
		t.Fatalf("delete a namespace: %d %s", code, body)
	}
	if code, body := call(s, "PATCH", namespaced+"/resourcequotas/q/status", mergePatch,
		`{"status":{"hard":{"persistentvolumeclaims":"0"},"used":{"persistentvolumeclaims":"0"}}}`); code != 200 {
		t.Fatalf("set the status of a quota: %d %s", code, body)
	}
	return s, count
}

// call carries out a request without a network.
func call(s *Server, method, path, contentType, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Header.Set("User-Agent", "test")
	w := httptest.NewRecorder()
	s.serve(w, r)
	return w.Code, w.Body.String()
}

// newFullFixture serves a full server over HTTP/1.1, or over HTTP/2 with TLS.
func newFullFixture(t *testing.T, secure bool) (*fixture, *http.Client, *atomic.Int64) {
	t.Helper()
	s, count := newFullServer(t)
	h := httptest.NewUnstartedServer(s.Handler())
	if h.EnableHTTP2 = secure; secure {
		h.StartTLS()
	} else {
		h.Start()
	}
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return &fixture{t, s, h.URL}, h.Client(), count
}

// send sends a request and returns the status that answers it.
func (f *fixture) send(c *http.Client, in badInput) (int, metav1.Status) {
	f.Helper()
	var body io.Reader = strings.NewReader(in.body)
	if in.chunked {
		body = io.MultiReader(body)
	}
	r, err := http.NewRequestWithContext(f.Context(), in.method, f.url+in.path, body)
	if err != nil {
		f.Fatal(err)
	}
	if in.contentType != "" {
		r.Header.Set("Content-Type", in.contentType)
	}
	if in.accept != "" {
		r.Header.Set("Accept", in.accept)
	}
	resp, err := c.Do(r)
	if err != nil {
		f.Fatalf("%s: %v", in.name, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatalf("%s: %v", in.name, err)
	}
	var status metav1.Status
	if resp.StatusCode < 400 {
		status.Message = string(data)
		return resp.StatusCode, status
	}
	if resp.Header.Get("Content-Type") == typeYAML {
		if data, err = yaml.YAMLToJSON(data); err != nil {
			f.Fatalf("%s: %v", in.name, err)
		}
	}
	if err := json.Unmarshal(data, &status); err != nil {
		f.Fatalf("%s: %v: %.200s", in.name, err, data)
	}
	return resp.StatusCode, status
}

// check compares an answer with the one that is due.
func (in badInput) check(t *testing.T, code int, status metav1.Status) {
	t.Helper()
	if code != in.code || status.Reason != in.reason || !strings.Contains(status.Message, in.message) {
		t.Errorf("%s: got %d %s %.500q, want %d %s %q", in.name, code, status.Reason, status.Message, in.code, in.reason, in.message)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure || int(status.Code) != code {
		t.Errorf("%s: not a failure in v1: %.300v", in.name, status)
	}
}

// TestBadInput sends what must be refused, over HTTP/1.1 and over HTTP/2 with TLS: each answer is the one that Kubernetes
// 1.31 gives, nothing is written, nothing panics, and neither memory nor goroutines stay behind.
func TestBadInput(t *testing.T) {
	for _, protocol := range []struct {
		name   string
		secure bool
	}{{"HTTP 1.1", false}, {"HTTP 2", true}} {
		t.Run(protocol.name, func(t *testing.T) {
			f, c, panicked := newFullFixture(t, protocol.secure)
			inputs := badInputs()
			names := map[string]bool{}
			revision := f.s.store.Revision()
			for _, in := range inputs {
				if names[in.name] {
					t.Errorf("two cases are called %q", in.name)
				}
				names[in.name] = true
				code, status := f.send(c, in)
				in.check(t, code, status)
				if now := f.s.store.Revision(); now != revision {
					t.Errorf("%s: something was written", in.name)
					revision = now
				}
			}
			goroutines, heap := settled(c)
			for _, in := range inputs {
				f.send(c, in)
			}
			moreGoroutines, moreHeap := settled(c)
			if moreGoroutines > goroutines {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines, %d more than before:\n%s", moreGoroutines, moreGoroutines-goroutines, stacks[:runtime.Stack(stacks, true)])
			}
			if moreHeap > heap+4<<20 {
				t.Errorf("%d bytes of heap, %d more than before", moreHeap, moreHeap-heap)
			}
			if n := panicked.Load(); n > 0 {
				t.Errorf("%d requests panicked", n)
			}
			if code, status := f.send(c, badInput{method: "POST", path: configMaps, contentType: typeJSON, body: `{"metadata":{"name":"after"}}`}); code != 201 {
				t.Errorf("create afterwards: %d %s", code, status.Message)
			}
		})
	}
}

// settled returns the number of goroutines and the size of the heap once idle connections have been closed. The HTTP
// server itself lets a connection whose body was too large linger for half a second.
func settled(c *http.Client) (goroutines int, heap uint64) {
	c.CloseIdleConnections()
	stacks := make([]byte, 1<<20)
	for range 200 {
		time.Sleep(5 * time.Millisecond)
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("net/http.(*conn)")) {
			break
		}
	}
	stacks = nil
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}

const namespaced = "/api/v1/namespaces/default"

func deployment(name, selector, label string) string {
	return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `"},"spec":{"selector":{"matchLabels":{"app":"` + selector +
		`"}},"template":{"metadata":{"labels":{"app":"` + label + `"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
}

func roleBinding(role string) string {
	return `{"metadata":{"name":"rb"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + role + `"},"subjects":[]}`
}

// pod is a pod with more fields in its spec, and in its container.
func pod(spec, container string) string {
	if container != "" {
		container = "," + container
	}
	if spec != "" {
		spec = "," + spec
	}
	return `{"metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"` + container + `}]` + spec + `}}`
}

// aliases is a small YAML document that stands for a huge one.
func aliases() string {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: new}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		before, name := string(rune('a'+i-1)), string(rune('a'+i))
		if i == 1 {
			before = "a0"
		}
		b.WriteString(name + ": &" + name + " [" + strings.Repeat("*"+before+",", 9) + "*" + before + "]\n")
	}
	return b.String()
}
