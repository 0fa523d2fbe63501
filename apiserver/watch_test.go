package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// watches starts a watch of the ConfigMaps in the namespace default.
type watches func(context.Context, metav1.ListOptions) (watch.Interface, error)

// watchClients are clients of the world outside, one for each form of watch frames.
func watchClients(t *testing.T, f *fixture) map[string]watches {
	t.Helper()
	config := &rest.Config{Host: f.url, QPS: -1}
	general, err := dynamic.NewForConfigAndClient(config, &http.Client{})
	if err != nil {
		t.Fatal(err)
	}
	binary := rest.CopyConfig(config)
	binary.ContentType, binary.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	typed, err := typedcore.NewForConfigAndClient(binary, &http.Client{})
	if err != nil {
		t.Fatal(err)
	}
	partial, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), &http.Client{})
	if err != nil {
		t.Fatal(err)
	}
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	return map[string]watches{
		"JSON":     general.Resource(maps).Namespace("default").Watch,
		"protobuf": typed.ConfigMaps("default").Watch,
		"metadata": partial.Resource(maps).Namespace("default").Watch,
	}
}

// stream reads the events of a watch.
type stream struct {
	*testing.T
	watch.Interface
}

func (w watches) open(t *testing.T, opts metav1.ListOptions) stream {
	t.Helper()
	s, err := w(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return stream{t, s}
}

// next returns the next event and the metadata of its object.
func (s stream) next() (watch.Event, metav1.Object) {
	s.Helper()
	select {
	case e, ok := <-s.ResultChan():
		if !ok {
			s.Fatal("the watch has ended")
		}
		if e.Type == watch.Error {
			return e, nil
		}
		m, err := meta.Accessor(e.Object)
		if err != nil {
			s.Fatal(err)
		}
		return e, m
	case <-time.After(20 * time.Second):
		s.Fatal("no event came")
		return watch.Event{}, nil
	}
}

// want reads events that are to be like "ADDED a", with growing resource versions, and returns the last one's version.
func (s stream) want(after string, events ...string) string {
	s.Helper()
	for _, want := range events {
		e, m := s.next()
		if m == nil {
			s.Fatalf("%v, want %s", e.Object, want)
		}
		if got := string(e.Type) + " " + m.GetName(); got != want {
			s.Fatalf("%s, want %s", got, want)
		}
		if number(s.T, m.GetResourceVersion()) <= number(s.T, after) {
			s.Errorf("%s has version %s, not after %s", want, m.GetResourceVersion(), after)
		}
		after = m.GetResourceVersion()
	}
	return after
}

func number(t *testing.T, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt("0"+version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// put creates or changes a ConfigMap and returns its resource version.
func (f *fixture) put(name, labels string) string {
	f.Helper()
	obj := f.want2(200, 201, "PATCH", configMaps+"/"+name+"?fieldManager=test&force=true", applyPatch,
		fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {%s}}\n", name, labels))
	version, _ := at(obj, "metadata", "resourceVersion").(string)
	return version
}

// want2 is want for either of two codes.
func (f *fixture) want2(code, or int, method, path, contentType, body string) map[string]any {
	f.Helper()
	got, out := f.do(method, path, contentType, body)
	if got != code && got != or {
		f.Fatalf("%s %s: got %d, want %d or %d: %v", method, path, got, code, or, out)
	}
	return out
}

func TestWatchContract(t *testing.T) {
	for _, form := range []string{"JSON", "protobuf", "metadata"} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			for _, test := range []struct {
				name string
				run  func(*testing.T, *fixture, watches)
			}{
				{"initial events", initialEvents},
				{"existing objects", existingObjects},
				{"resume", resume},
				{"too old", tooOldToWatch},
				{"labels", watchLabels},
				{"one name", watchName},
				{"end", watchEnd},
			} {
				t.Run(test.name, func(t *testing.T) {
					f := newFixture(t)
					test.run(t, f, watchClients(t, f)[form])
				})
			}
		})
	}
}

// initialEvents asks for the state as events: all objects, a bookmark that says so, and then the changes.
func initialEvents(t *testing.T, f *fixture, w watches) {
	f.put("a", "")
	f.put("b", "x: one")
	last := f.put("c", "")
	s := w.open(t, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	s.want("", "ADDED a", "ADDED b", "ADDED c")
	e, m := s.next()
	if e.Type != watch.Bookmark || m == nil || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || number(t, m.GetResourceVersion()) < number(t, last) {
		t.Fatalf("%s %v, want a bookmark at %s or later that ends the initial events", e.Type, e.Object, last)
	}
	f.put("b", "x: two")
	s.want(last, "MODIFIED b")

	// From a known version on, the objects that exist come first all the same.
	s = w.open(t, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: last,
		LabelSelector: "x",
	})
	s.want("", "ADDED b")
	if e, m := s.next(); e.Type != watch.Bookmark || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Errorf("%s %v, want the bookmark", e.Type, e.Object)
	}
	// Without, and with a version, there are no initial events.
	s = w.open(t, metav1.ListOptions{
		SendInitialEvents: ptr.To(false), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, ResourceVersion: f.put("a", "x: one"),
	})
	f.put("d", "")
	s.want("", "ADDED d")
}

// existingObjects come first when a watch names no version, or any.
func existingObjects(t *testing.T, f *fixture, w watches) {
	f.put("a", "")
	f.put("b", "")
	for _, version := range []string{"", "0"} {
		s := w.open(t, metav1.ListOptions{ResourceVersion: version})
		last := s.want("", "ADDED a", "ADDED b")
		name := "new" + version
		f.put(name, "")
		s.want(last, "ADDED "+name)
		f.want(200, "DELETE", configMaps+"/"+name, "", "")
		s.want(last, "DELETED "+name)
	}
}

// resume goes on after a list, and again after every event, without a gap and without anything twice.
func resume(t *testing.T, f *fixture, w watches) {
	start := f.put("a", "")
	f.put("b", "")
	f.put("a", "x: one")
	f.want(200, "DELETE", configMaps+"/b", "", "")
	f.put("b", "")
	events := []string{"ADDED b", "MODIFIED a", "DELETED b", "ADDED b"}
	w.open(t, metav1.ListOptions{ResourceVersion: start}).want(start, events...)
	at := start
	for _, e := range events {
		s := w.open(t, metav1.ListOptions{ResourceVersion: at})
		at = s.want(at, e)
		s.Stop()
	}
}

// tooOldToWatch is what has been forgotten: a watch ends with an error, and so do a list and the rest of a list.
func tooOldToWatch(t *testing.T, f *fixture, w watches) {
	old := f.put("a", "")
	for i := range 5 {
		f.put(fmt.Sprintf("b%d", i), "")
	}
	page := f.want(200, "GET", configMaps+"?limit=2", "", "")
	last := f.put("c", "")
	if err := f.s.store.Compact(t.Context(), f.s.store.Revision()); err != nil {
		t.Fatal(err)
	}
	e, _ := w.open(t, metav1.ListOptions{ResourceVersion: old}).next()
	if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("%s %v, want an error that tells of an expired version", e.Type, err)
	}
	expired := f.want(410, "GET", configMaps+"?resourceVersionMatch=Exact&resourceVersion="+old, "", "")
	if at(expired, "reason") != "Expired" {
		t.Errorf("list: %v", expired)
	}
	token, _ := at(page, "metadata", "continue").(string)
	expired = f.want(410, "GET", configMaps+"?limit=10&continue="+token, "", "")
	next, _ := at(expired, "metadata", "continue").(string)
	if at(expired, "reason") != "Expired" || next == "" {
		t.Fatalf("rest of a list: %v", expired)
	}
	rest := f.want(200, "GET", configMaps+"?limit=10&continue="+next, "", "")
	if items, _ := at(rest, "items").([]any); len(items) != 5 {
		t.Errorf("inconsistent rest: %d objects, want 5", len(items))
	}
	s := w.open(t, metav1.ListOptions{ResourceVersion: last})
	f.put("d", "")
	s.want(last, "ADDED d")
}

// watchLabels shows objects as they come under a selector and leave it.
func watchLabels(t *testing.T, f *fixture, w watches) {
	start := f.put("a", "")
	s := w.open(t, metav1.ListOptions{ResourceVersion: start, LabelSelector: "x in (one,two),!hidden"})
	f.put("a", "x: one")
	f.put("b", "x: three")
	f.put("a", "x: two")
	f.put("a", `x: two, hidden: ""`)
	f.put("a", "x: one")
	f.want(200, "DELETE", configMaps+"/b", "", "")
	f.want(200, "DELETE", configMaps+"/a", "", "")
	s.want(start, "ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a")
}

// watchName shows one object.
func watchName(t *testing.T, f *fixture, w watches) {
	start := f.put("other", "")
	s := w.open(t, metav1.ListOptions{ResourceVersion: start, FieldSelector: "metadata.name=a"})
	f.put("b", "")
	f.put("a", "")
	f.put("b", "x: one")
	f.put("a", "x: one")
	s.want(start, "ADDED a", "MODIFIED a")
}

// watchEnd is announced by a bookmark, when there are bookmarks: what comes after it is new.
func watchEnd(t *testing.T, f *fixture, w watches) {
	start := f.put("a", "")
	s := w.open(t, metav1.ListOptions{ResourceVersion: start, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](1)})
	e, m := s.next()
	if e.Type != watch.Bookmark || number(t, m.GetResourceVersion()) < number(t, start) {
		t.Errorf("%s %v, want a bookmark at %s or later", e.Type, e.Object, start)
	}
	if e, ok := <-s.ResultChan(); ok {
		t.Errorf("%s %v after the end", e.Type, e.Object)
	}
}

// TestWatchFields follows the pods of a node, through typed access in protobuf.
func TestWatchFields(t *testing.T) {
	f := newFixture(t)
	c, err := typedcore.NewForConfigAndClient(&rest.Config{Host: f.url, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf}}, &http.Client{})
	if err != nil {
		t.Fatal(err)
	}
	w := watches(c.Pods("default").Watch)
	s := w.open(t, metav1.ListOptions{FieldSelector: "spec.nodeName=n,status.phase!=Succeeded"})
	for _, name := range []string{"p", "q"} {
		f.want(201, "POST", pods, typeJSON, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	}
	if err := c.Pods("default").Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	last := s.want("", "ADDED p")
	for _, phase := range []string{"Running", "Succeeded"} {
		if _, err := c.Pods("default").Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"`+phase+`"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	s.want(last, "MODIFIED p", "DELETED p")
}
