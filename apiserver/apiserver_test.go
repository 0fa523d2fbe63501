package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"proa/api/builtin"
	"proa/apiserver/request"
	"proa/client"
	"proa/store"
)

// fixture is a server over a store in memory.
type fixture struct {
	*testing.T
	s   *Server
	url string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	table := builtin.Table()
	st, err := store.Open(t.Context(), store.Config{Decode: Decode(table)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Table: table, Store: st, ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"), CheckImmutable: true})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		s.dispatch.close()
		if err := s.encodings.seals.all(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return &fixture{t, s, h.URL}
}

// do sends a request and returns the status code and the decoded answer.
func (f *fixture) do(method, path, contentType, body string) (int, map[string]any) {
	f.Helper()
	req, err := http.NewRequestWithContext(f.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		f.Fatalf("%s %s: %v: %s", method, path, err, data)
	}
	return resp.StatusCode, out
}

// want sends a request whose code must be code.
func (f *fixture) want(code int, method, path, contentType, body string) map[string]any {
	f.Helper()
	got, out := f.do(method, path, contentType, body)
	if got != code {
		text, _ := json.Marshal(out)
		f.Fatalf("%s %s: got %d, want %d: %s", method, path, got, code, text)
	}
	return out
}

func at(obj any, path ...string) any {
	for _, p := range path {
		m, _ := obj.(map[string]any)
		obj = m[p]
	}
	return obj
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestLifecycle(t *testing.T) {
	f := newFixture(t)
	made := f.want(201, "POST", configMaps, "application/json", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	if at(made, "kind") != "ConfigMap" || at(made, "metadata", "resourceVersion") == nil || at(made, "metadata", "managedFields") == nil {
		t.Errorf("created: %v", made)
	}
	f.want(409, "POST", configMaps, "application/json", `{"metadata":{"name":"a"}}`)
	got := f.want(200, "GET", configMaps+"/a", "", "")
	if at(got, "data", "k") != "1" {
		t.Errorf("read: %v", got)
	}
	list := f.want(200, "GET", configMaps, "", "")
	if items := at(list, "items").([]any); at(list, "kind") != "ConfigMapList" || len(items) != 1 {
		t.Errorf("list: %v", list)
	}
	stale := `{"metadata":{"name":"a","resourceVersion":"999999"},"data":{}}`
	if c := f.want(409, "PUT", configMaps+"/a", "application/json", stale); at(c, "reason") != "Conflict" {
		t.Errorf("conflict: %v", c)
	}
	f.want(200, "PUT", configMaps+"/a", "application/json", `{"metadata":{"name":"a"},"data":{"k":"2"}}`)
	patched := f.want(200, "PATCH", configMaps+"/a", "application/strategic-merge-patch+json", `{"data":{"m":"3"}}`)
	if at(patched, "data", "k") != "2" || at(patched, "data", "m") != "3" {
		t.Errorf("patched: %v", patched)
	}
	f.want(200, "PATCH", configMaps+"/a", "application/json-patch+json", `[{"op":"remove","path":"/data/m"}]`)
	applied := f.want(200, "PATCH", configMaps+"/a?fieldManager=me&force=true", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"4\"}")
	if at(applied, "data", "k") != "4" {
		t.Errorf("applied: %v", applied)
	}
	conflict := f.want(409, "PATCH", configMaps+"/a?fieldManager=you", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"5\"}")
	if causes, _ := at(conflict, "details", "causes").([]any); len(causes) == 0 {
		t.Errorf("apply conflict: %v", conflict)
	}
	if d := f.want(200, "DELETE", configMaps+"/a", "", ""); at(d, "status") != "Success" {
		t.Errorf("deleted: %v", d)
	}
	if n := f.want(404, "GET", configMaps+"/a", "", ""); at(n, "message") != `configmaps "a" not found` {
		t.Errorf("not found: %v", n)
	}
}

func TestWatch(t *testing.T) {
	f := newFixture(t)
	f.want(201, "POST", configMaps, "application/json", `{"metadata":{"name":"a","labels":{"x":"y"}}}`)
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+configMaps+"?watch=1&labelSelector=x%3Dy", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var e map[string]any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e["type"] != want || at(e, "object", "metadata", "name") != "a" {
			t.Fatalf("got %s, want %s", lines.Text(), want)
		}
	}
	next("ADDED")
	f.want(200, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"data":{"k":"v"}}`)
	next("MODIFIED")
	f.want(200, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"metadata":{"labels":{"x":null}}}`)
	next("DELETED")
	f.want(200, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"metadata":{"labels":{"x":"y"}}}`)
	next("ADDED")
	f.want(200, "DELETE", configMaps+"/a", "", "")
	next("DELETED")
}

func TestLocal(t *testing.T) {
	f := newFixture(t)
	c := f.s.Client(&request.User{Name: "me"}, "test")
	maps := client.For[*corev1.ConfigMap](c)
	events := make(chan client.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Subscribe(ctx, func(e client.Event) { events <- e }, maps.Scope())
	}()
	wait := func() client.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
			panic("unreachable")
		}
	}
	if e := wait(); !e.Synced() {
		t.Fatalf("first event %v", e)
	}
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = "default", "a"
	made, err := maps.Create(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if e := wait(); e.New != made || e.Old != nil {
		t.Errorf("event %v, want the committed object itself", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Applying the same again changes nothing, also where the server writes a value in another way, however late it is.
func TestApplyAgain(t *testing.T) {
	f := newFixture(t)
	const quota = "/api/v1/namespaces/default/resourcequotas/q?fieldManager=me"
	const body = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {cpu: \"0.5\"}}\n"
	made := f.want(201, "PATCH", quota, "application/apply-patch+yaml", body)
	fields := at(made, "metadata", "managedFields").([]any)
	fields[0].(map[string]any)["time"] = "2001-02-03T04:05:06Z"
	at(made, "metadata").(map[string]any)["labels"] = map[string]any{"a": "b"}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	aged := f.want(200, "PUT", strings.Replace(quota, "=me", "=other", 1), "application/json", string(text))
	if got := at(at(aged, "metadata", "managedFields").([]any)[0], "time"); got != "2001-02-03T04:05:06Z" {
		t.Fatalf("the first manager's time is %v", got)
	}
	again := f.want(200, "PATCH", quota, "application/apply-patch+yaml", body)
	if diff := cmp.Diff(at(aged, "metadata"), at(again, "metadata")); diff != "" {
		t.Errorf("metadata changed (-want +got):\n%s", diff)
	}
}

func TestServiceAddresses(t *testing.T) {
	f := newFixture(t)
	const services = "/api/v1/namespaces/default/services"
	first := f.want(201, "POST", services, "application/json", `{"metadata":{"name":"kubernetes"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":443}]}}`)
	if at(first, "spec", "clusterIP") != "10.96.0.1" {
		t.Errorf("first: %v", first)
	}
	taken := f.want(422, "POST", services, "application/json", `{"metadata":{"name":"b"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":443}]}}`)
	if text, _ := at(taken, "message").(string); !strings.Contains(text, "provided IP is already allocated") {
		t.Errorf("taken: %v", taken)
	}
	node := f.want(201, "POST", services, "application/json", `{"metadata":{"name":"n"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
	if ports := at(node, "spec", "ports").([]any); at(ports[0], "nodePort") == nil {
		t.Errorf("node port: %v", node)
	}
	f.want(200, "DELETE", services+"/kubernetes", "", "")
	f.want(201, "POST", services, "application/json", `{"metadata":{"name":"c"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":443}]}}`)
}

// TestRefusals checks that what cannot be done is refused with the right code.
func TestRefusals(t *testing.T) {
	f := newFixture(t)
	big := `{"metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", maxBody) + `"}}`
	for _, c := range []struct {
		name, method, path, contentType, body string
		code                                  int
		message                               string
	}{
		{"unknown path", "GET", "/nothing", "", "", 404, "the server could not find the requested resource"},
		{"unknown resource", "GET", "/api/v1/things", "", "", 404, ""},
		{"dots", "GET", "/api/v1/%2e%2e/nodes", "", "", 400, ""},
		{"bad JSON", "POST", configMaps, "application/json", `{"metadata":`, 400, ""},
		{"bad UTF-8", "POST", configMaps, "application/json", "{\"metadata\":{\"name\":\"\xff\"}}", 400, ""},
		{"torn protobuf", "POST", configMaps, "application/vnd.kubernetes.protobuf", "k8s\x00\x0a\xff", 400, ""},
		{"media type", "POST", configMaps, "text/plain", "x", 415, ""},
		{"too large", "POST", configMaps, "application/json", big, 413, ""},
		{"no name", "POST", configMaps, "application/json", `{}`, 422, "name or generateName is required"},
		{"bad name", "POST", configMaps, "application/json", `{"metadata":{"name":"A"}}`, 422, "Invalid value"},
		{"wrong kind", "POST", configMaps, "application/json", `{"kind":"Pod","apiVersion":"v1"}`, 400, "cannot be handled as a ConfigMap"},
		{"wrong version", "POST", configMaps, "application/json", `{"kind":"ConfigMap","apiVersion":"v2"}`, 400, "does not match the expected API version (v1)"},
		{"other namespace", "POST", configMaps, "application/json", `{"metadata":{"name":"a","namespace":"b"}}`, 400, "does not match the namespace sent on the request"},
		{"strict", "POST", configMaps + "?fieldValidation=Strict", "application/json", `{"metadata":{"name":"a"},"foo":1}`, 400, `strict decoding error: unknown field "foo"`},
		{"label selector", "GET", configMaps + "?labelSelector=a+b+c", "", "", 400, "unable to parse requirement"},
		{"field selector", "GET", configMaps + "?fieldSelector=spec.x%3D1", "", "", 400, `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"future", "GET", configMaps + "?resourceVersion=99&resourceVersionMatch=Exact", "", "", 504, "Too large resource version"},
		{"continue", "GET", configMaps + "?continue=x", "", "", 400, "continue key is not valid"},
		{"patch type", "PATCH", configMaps + "/a", "application/json", "{}", 415, ""},
		{"method", "PUT", "/api/v1/namespaces/default/bindings/x", "application/json", "{}", 405, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := f.do(c.method, c.path, c.contentType, c.body)
			text, _ := at(out, "message").(string)
			if code != c.code || !strings.Contains(text, c.message) || at(out, "kind") != "Status" {
				t.Errorf("got %d %q, want %d %q", code, text, c.code, c.message)
			}
		})
	}
}

func TestPages(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		f.want(201, "POST", configMaps, "application/json", `{"metadata":{"name":"`+name+`"}}`)
	}
	page := f.want(200, "GET", configMaps+"?limit=2", "", "")
	if at(page, "metadata", "remainingItemCount") != 1.0 {
		t.Errorf("first page: %v", at(page, "metadata"))
	}
	f.want(200, "DELETE", configMaps+"/c", "", "")
	next, _ := at(page, "metadata", "continue").(string)
	page = f.want(200, "GET", configMaps+"?limit=2&continue="+next, "", "")
	if items := at(page, "items").([]any); len(items) != 1 || at(items[0], "metadata", "name") != "c" {
		t.Errorf("second page is not of the same moment: %v", page)
	}
	f.want(200, "DELETE", configMaps, "", "")
	if left := f.want(200, "GET", configMaps, "", ""); len(at(left, "items").([]any)) != 0 {
		t.Errorf("left after deleting all: %v", left)
	}
}

func TestFinalizers(t *testing.T) {
	f := newFixture(t)
	f.want(201, "POST", configMaps, "application/json", `{"metadata":{"name":"a","finalizers":["example.com/wait"]}}`)
	marked := f.want(200, "DELETE", configMaps+"/a", "", "")
	if at(marked, "metadata", "deletionTimestamp") == nil {
		t.Errorf("marked: %v", marked)
	}
	for _, path := range []string{configMaps, configMaps + "?dryRun=All"} {
		again := f.want(409, "POST", path, "application/json", `{"metadata":{"name":"a"}}`)
		if got := at(again, "message"); got != `object is being deleted: configmaps "a" already exists` {
			t.Errorf("POST %s: %v", path, got)
		}
	}
	f.want(200, "PATCH", configMaps+"/a", "application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
	f.want(404, "GET", configMaps+"/a", "", "")
}

func TestNamespaceDeletion(t *testing.T) {
	f := newFixture(t)
	f.want(201, "POST", "/api/v1/namespaces", "application/json", `{"metadata":{"name":"n"}}`)
	ns := f.want(200, "DELETE", "/api/v1/namespaces/n", "", "")
	if at(ns, "status", "phase") != "Terminating" {
		t.Errorf("deleted: %v", ns)
	}
	f.want(409, "DELETE", "/api/v1/namespaces/n", "", "")
	f.want(200, "PUT", "/api/v1/namespaces/n/finalize", "application/json", `{"metadata":{"name":"n"},"spec":{"finalizers":[]}}`)
	f.want(404, "GET", "/api/v1/namespaces/n", "", "")
}

func TestPodLife(t *testing.T) {
	f := newFixture(t)
	const pods = "/api/v1/namespaces/default/pods"
	f.want(201, "POST", pods, "application/json", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	f.want(201, "POST", pods+"/p/binding", "application/json", `{"target":{"kind":"Node","name":"n"}}`)
	f.want(409, "POST", pods+"/p/binding", "application/json", `{"target":{"kind":"Node","name":"m"}}`)
	f.want(200, "PATCH", pods+"/p/status", "application/merge-patch+json", `{"status":{"phase":"Running"}}`)
	got := f.want(200, "GET", pods+"?fieldSelector=spec.nodeName%3Dn,status.phase%3DRunning", "", "")
	if len(at(got, "items").([]any)) != 1 {
		t.Errorf("by node and phase: %v", got)
	}
	dying := f.want(200, "DELETE", pods+"/p", "", "")
	if at(dying, "metadata", "deletionGracePeriodSeconds") != 30.0 {
		t.Errorf("dying: %v", at(dying, "metadata"))
	}
	f.want(200, "DELETE", pods+"/p?gracePeriodSeconds=0", "", "")
	f.want(404, "GET", pods+"/p", "", "")
}

func TestVersionsAndViews(t *testing.T) {
	f := newFixture(t)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	f.want(201, "PATCH", deployments+"/d?fieldManager=me", "application/apply-patch+yaml", body)
	f.want(200, "PATCH", deployments+"/d?fieldManager=me", "application/apply-patch+yaml", body)
	scale := f.want(200, "PATCH", deployments+"/d/scale", "application/merge-patch+json", `{"spec":{"replicas":3}}`)
	if at(scale, "kind") != "Scale" || at(scale, "spec", "replicas") != 3.0 {
		t.Errorf("scale: %v", scale)
	}
	if d := f.want(200, "GET", deployments+"/d", "", ""); at(d, "metadata", "generation") != 2.0 {
		t.Errorf("generation: %v", at(d, "metadata"))
	}
	f.want(201, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", "application/json",
		`{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingController":"x.io/y","reportingInstance":"z","action":"A","reason":"R","type":"Normal","regarding":{"kind":"Pod","namespace":"default","name":"p"}}`)
	if e := f.want(200, "GET", "/api/v1/namespaces/default/events/e", "", ""); at(e, "involvedObject", "name") != "p" {
		t.Errorf("event: %v", e)
	}
	if l := f.want(200, "GET", "/apis/events.k8s.io/v1/events", "", ""); at(l, "kind") != "EventList" || len(at(l, "items").([]any)) != 1 {
		t.Errorf("events: %v", l)
	}
	for accept, kind := range map[string]string{
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json":    "Table",
		"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": "PartialObjectMetadataList",
		"application/vnd.kubernetes.protobuf;q=0.1,application/json":       "DeploymentList",
		"application/json;as=Unknown;v=v1;g=meta.k8s.io,application/json":  "DeploymentList",
		"application/vnd.example;q=1":                                      "Status",
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+deployments, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out["kind"] != kind {
			t.Errorf("Accept %s: got %v, want a %s: %v", accept, out, kind, err)
		}
		resp.Body.Close()
	}
}

// TestNoChange writes back what was read, in every way: the object stays as it is.
func TestNoChange(t *testing.T) {
	f := newFixture(t)
	version := func(obj map[string]any) any { return at(obj, "metadata", "resourceVersion") }
	made := f.want(201, "POST", configMaps, typeJSON, `{"metadata":{"name":"a"},"data":{"k":"v"}}`)
	f.want(201, "PATCH", configMaps+"/b?fieldManager=me", "application/apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {k: v}\nmetadata: {name: b}\n")
	applied := f.want(200, "GET", configMaps+"/b", "", "")
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range []struct{ method, contentType, body string }{
		{"PATCH", "application/merge-patch+json", `{}`},
		{"PATCH", "application/strategic-merge-patch+json", `{"data":{"k":"v"}}`},
		{"PATCH", "application/json-patch+json", `[]`},
		{"PUT", typeJSON, string(text)},
		{"PUT", typeJSON, `{"metadata":{"name":"a"},"data":{"k":"v"}}`},
	} {
		if now := version(f.want(200, write.method, configMaps+"/a", write.contentType, write.body)); now != version(made) {
			t.Errorf("%s %s: version %v after %v", write.method, write.body, now, version(made))
		}
	}
	if now := version(f.want(200, "PATCH", configMaps+"/b", "application/merge-patch+json", `{}`)); now != version(applied) {
		t.Errorf("patch of what was applied: version %v after %v", now, version(applied))
	}
}
