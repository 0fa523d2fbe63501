// Package clienttest is the contract of client.Interface as tests: Run holds an implementation to it. The API server's
// local client, the remote one and the fake all pass, so that a component cannot tell them apart.
package clienttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa/client"
)

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// Run tests the clients that new returns, each with an API of its own that is empty but for what every API holds. All
// objects are made in the namespace default, which need not exist.
func Run(t *testing.T, new func(t *testing.T) client.Interface) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, client.Interface)
	}{
		{"create", create},
		{"update", update},
		{"status", status},
		{"patch", patch},
		{"delete", remove},
		{"delete collection", removeCollection},
		{"select", selected},
		{"bind", bind},
		{"lister", lister},
		{"subscribe", subscribe},
		{"subscribe to a selection", subscribeSelection},
		{"subscribe to two kinds", subscribeTwo},
		{"last state arrives", lastState},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, new(t)) })
	}
}

const namespace = "default"

func configMap(name string, labels ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"k": "v"}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		metav1.SetMetaDataLabel(&c.ObjectMeta, key, value)
	}
	return c
}

func replicaSet(name string) *appsv1.ReplicaSet {
	set := map[string]string{"app": "a"}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: appsv1.ReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: set},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// must returns the object, or ends the test.
func must[T any](obj T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
}

func create(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	given := configMap("a")
	made := must(maps.Create(t.Context(), given))(t)
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() {
		t.Errorf("made without a uid, a version or a time: %+v", made.ObjectMeta)
	}
	given.Data["k"] = "changed"
	got := must(maps.Get(t.Context(), namespace, "a"))(t)
	if got.Data["k"] != "v" || got.UID != made.UID || got.ResourceVersion != made.ResourceVersion {
		t.Errorf("read %v %+v, made %+v", got.Data, got.ObjectMeta, made.ObjectMeta)
	}
	if _, err := maps.Create(t.Context(), configMap("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create of a taken name: %v, want AlreadyExists", err)
	}
	if _, err := maps.Create(t.Context(), configMap("A_B")); !apierrors.IsInvalid(err) {
		t.Errorf("create of a bad name: %v, want Invalid", err)
	}
	if _, err := maps.Get(t.Context(), namespace, "nothing"); !apierrors.IsNotFound(err) {
		t.Errorf("get of what is not there: %v, want NotFound", err)
	}
	generated := configMap("")
	generated.GenerateName = "made-"
	first, second := must(maps.Create(t.Context(), generated))(t), must(maps.Create(t.Context(), generated))(t)
	if !strings.HasPrefix(first.Name, "made-") || first.Name == second.Name {
		t.Errorf("generated names %q and %q", first.Name, second.Name)
	}
	rs := replicaSet("r")
	rs.Status.Replicas = 7
	if rs := must(client.For[*appsv1.ReplicaSet](c).Create(t.Context(), rs))(t); rs.Generation != 1 || rs.Spec.Replicas == nil || *rs.Spec.Replicas != 1 || rs.Status.Replicas != 0 {
		t.Errorf("replica set: generation %d, replicas %v, status %d: want 1, the default 1, none", rs.Generation, rs.Spec.Replicas, rs.Status.Replicas)
	}
}

func update(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	first := must(maps.Create(t.Context(), configMap("a")))(t)
	change := first.DeepCopy()
	change.Data["k"] = "w"
	second := must(maps.Update(t.Context(), change))(t)
	if second.ResourceVersion == first.ResourceVersion || second.Data["k"] != "w" || first.Data["k"] != "v" {
		t.Errorf("update: version %s after %s, data %v after %v", second.ResourceVersion, first.ResourceVersion, second.Data, first.Data)
	}
	change.Data["k"] = "x"
	if _, err := maps.Update(t.Context(), change); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want Conflict", err)
	}
	if same := must(maps.Update(t.Context(), second.DeepCopy()))(t); same.ResourceVersion != second.ResourceVersion {
		t.Errorf("update without a change: version %s after %s", same.ResourceVersion, second.ResourceVersion)
	}
	change.ResourceVersion = ""
	if last := must(maps.Update(t.Context(), change))(t); last.Data["k"] != "x" {
		t.Errorf("update of any version: %v", last.Data)
	}
	if _, err := maps.Update(t.Context(), configMap("nothing")); !apierrors.IsNotFound(err) {
		t.Errorf("update of what is not there: %v, want NotFound", err)
	}
}

func status(t *testing.T, c client.Interface) {
	sets := client.For[*appsv1.ReplicaSet](c)
	made := must(sets.Create(t.Context(), replicaSet("a")))(t)
	both := made.DeepCopy()
	*both.Spec.Replicas, both.Status.Replicas = 3, 3
	reported := must(sets.UpdateStatus(t.Context(), both))(t)
	if *reported.Spec.Replicas != 1 || reported.Status.Replicas != 3 || reported.Generation != 1 {
		t.Errorf("update of the status: spec %d, status %d, generation %d", *reported.Spec.Replicas, reported.Status.Replicas, reported.Generation)
	}
	both = reported.DeepCopy()
	*both.Spec.Replicas, both.Status.Replicas = 4, 4
	wanted := must(sets.Update(t.Context(), both))(t)
	if *wanted.Spec.Replicas != 4 || wanted.Status.Replicas != 3 || wanted.Generation != 2 {
		t.Errorf("update: spec %d, status %d, generation %d", *wanted.Spec.Replicas, wanted.Status.Replicas, wanted.Generation)
	}
	patched := must(sets.Patch(t.Context(), namespace, "a", "status", types.MergePatchType, []byte(`{"spec":{"replicas":9},"status":{"replicas":4}}`)))(t)
	if *patched.Spec.Replicas != 4 || patched.Status.Replicas != 4 || patched.Generation != 2 {
		t.Errorf("patch of the status: spec %d, status %d, generation %d", *patched.Spec.Replicas, patched.Status.Replicas, patched.Generation)
	}
}

func patch(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	must(maps.Create(t.Context(), configMap("a")))(t)
	for _, test := range []struct {
		kind types.PatchType
		data string
		want map[string]string
	}{
		{types.MergePatchType, `{"data":{"a":"1"}}`, map[string]string{"k": "v", "a": "1"}},
		{types.StrategicMergePatchType, `{"data":{"k":null}}`, map[string]string{"a": "1"}},
		{types.JSONPatchType, `[{"op":"add","path":"/data/b","value":"2"}]`, map[string]string{"a": "1", "b": "2"}},
	} {
		got := must(maps.Patch(t.Context(), namespace, "a", "", test.kind, []byte(test.data)))(t)
		if d := cmp.Diff(test.want, got.Data); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.kind, d)
		}
	}
	before := must(maps.Get(t.Context(), namespace, "a"))(t)
	if same := must(maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, []byte(`{}`)))(t); same.ResourceVersion != before.ResourceVersion {
		t.Errorf("patch without a change: version %s after %s", same.ResourceVersion, before.ResourceVersion)
	}
	if _, err := maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"},"data":{"k":"x"}}`)); !apierrors.IsConflict(err) {
		t.Errorf("patch of an old version: %v, want Conflict", err)
	}
	if _, err := maps.Patch(t.Context(), namespace, "nothing", "", types.MergePatchType, []byte(`{}`)); !apierrors.IsNotFound(err) {
		t.Errorf("patch of what is not there: %v, want NotFound", err)
	}
	if _, err := maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, []byte(`{`)); !apierrors.IsBadRequest(err) {
		t.Errorf("broken patch: %v, want BadRequest", err)
	}
}

func remove(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	held := configMap("a")
	held.Finalizers = []string{"example.com/hold"}
	made := must(maps.Create(t.Context(), held))(t)
	other := types.UID("other")
	if err := maps.Delete(t.Context(), namespace, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v, want Conflict", err)
	}
	if err := maps.Delete(t.Context(), namespace, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}}); err != nil {
		t.Fatal(err)
	}
	if ending := must(maps.Get(t.Context(), namespace, "a"))(t); ending.DeletionTimestamp == nil {
		t.Error("with a finalizer: not marked")
	}
	must(maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))(t)
	if _, err := maps.Get(t.Context(), namespace, "a"); !apierrors.IsNotFound(err) {
		t.Errorf("without the finalizer: %v, want NotFound", err)
	}
	if err := maps.Delete(t.Context(), namespace, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete of what is not there: %v, want NotFound", err)
	}

	pods := client.For[*corev1.Pod](c)
	running := pod("p")
	running.Spec.NodeName = "n"
	must(pods.Create(t.Context(), running))(t)
	if err := pods.Delete(t.Context(), namespace, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if p := must(pods.Get(t.Context(), namespace, "p"))(t); p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Errorf("pod: grace of %v, want 30", p.DeletionGracePeriodSeconds)
	}
	var now int64
	if err := pods.Delete(t.Context(), namespace, "p", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), namespace, "p"); !apierrors.IsNotFound(err) {
		t.Errorf("pod without grace: %v, want NotFound", err)
	}
}

func removeCollection(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	for _, name := range []string{"a", "b", "c"} {
		must(maps.Create(t.Context(), configMap(name, "keep="+name)))(t)
	}
	if err := c.DeleteCollection(t.Context(), maps.Kind(), namespace, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep notin (b)"}); err != nil {
		t.Fatal(err)
	}
	left := must(maps.List(t.Context(), namespace, metav1.ListOptions{}))(t)
	if len(left) != 1 || left[0].Name != "b" {
		t.Errorf("left: %v, want b", names(left))
	}
}

func names[T metav1.Object](objects []T) []string {
	var out []string
	for _, obj := range objects {
		out = append(out, obj.GetName())
	}
	slices.Sort(out)
	return out
}

func selected(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	must(maps.Create(t.Context(), configMap("a", "x=1")))(t)
	must(maps.Create(t.Context(), configMap("b", "x=2", "y=1")))(t)
	must(maps.Create(t.Context(), configMap("c")))(t)
	elsewhere := configMap("d", "x=1")
	elsewhere.Namespace = "elsewhere"
	must(maps.Create(t.Context(), elsewhere))(t)
	for _, test := range []struct {
		namespace, labels, fields string
		want                      []string
	}{
		{namespace, "", "", []string{"a", "b", "c"}},
		{"", "x", "", []string{"a", "b", "d"}},
		{namespace, "x=1", "", []string{"a"}},
		{namespace, "!x", "", []string{"c"}},
		{namespace, "x in (1,2),y!=1", "", []string{"a"}},
		{"", "", "metadata.namespace=elsewhere", []string{"d"}},
		{namespace, "x", "metadata.name!=a", []string{"b"}},
		{namespace, "", "metadata.name=nothing", nil},
	} {
		got := must(maps.List(t.Context(), test.namespace, metav1.ListOptions{LabelSelector: test.labels, FieldSelector: test.fields}))(t)
		if d := cmp.Diff(test.want, names(got)); d != "" {
			t.Errorf("%+v (-want +got):\n%s", test, d)
		}
	}
}

func bind(t *testing.T, c client.Interface) {
	pods := client.For[*corev1.Pod](c)
	must(pods.Create(t.Context(), pod("p")))(t)
	to := func(node string) *corev1.Binding {
		return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	}
	must(pods.Post(t.Context(), namespace, "p", "binding", to("n")))(t)
	got := must(pods.Get(t.Context(), namespace, "p"))(t)
	if got.Spec.NodeName != "n" || len(got.Status.Conditions) == 0 || got.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Errorf("bound to %q, conditions %v", got.Spec.NodeName, got.Status.Conditions)
	}
	if _, err := pods.Post(t.Context(), namespace, "p", "binding", to("m")); !apierrors.IsConflict(err) {
		t.Errorf("second binding: %v, want Conflict", err)
	}
	onNode := must(pods.List(t.Context(), namespace, metav1.ListOptions{FieldSelector: "spec.nodeName=n"}))(t)
	if len(onNode) != 1 {
		t.Errorf("pods on the node: %v", names(onNode))
	}
}

func lister(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	for _, name := range []string{"b", "a"} {
		must(maps.Create(t.Context(), configMap(name, "x=y")))(t)
	}
	must(maps.Create(t.Context(), configMap("hidden")))(t)
	scope := maps.Scope()
	scope.Namespace, scope.Labels = namespace, labels.SelectorFromSet(labels.Set{"x": "y"})
	l := c.Lister(t.Context(), scope)
	all := func() (out []string) {
		for obj := range l.All(namespace) {
			out = append(out, obj.GetName())
		}
		return out
	}
	if d := cmp.Diff([]string{"a", "b"}, all()); d != "" {
		t.Errorf("in name order (-want +got):\n%s", d)
	}
	if _, ok := l.Get(namespace, "a"); !ok {
		t.Error("does not know a")
	}
	if _, ok := l.Get(namespace, "hidden"); ok {
		t.Error("knows what its selector hides")
	}
	for range l.All("elsewhere") {
		t.Error("knows objects of another namespace")
	}
	must(maps.Create(t.Context(), configMap("c", "x=y")))(t)
	if err := maps.Delete(t.Context(), namespace, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{"a", "c"}
	for end := time.Now().Add(patience); !slices.Equal(all(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("knows %v, want %v", all(), want)
		}
	}
}

// follow subscribes and returns a function that returns the next event in words, and ends the test when none comes.
func follow(t *testing.T, c client.Interface, scopes ...client.Scope) (next func() string) {
	events := make(chan client.Event, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Subscribe(ctx, func(e client.Event) { events <- e }, scopes...); err != nil && ctx.Err() == nil {
			t.Errorf("subscription ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the subscription does not end with its context")
		}
	})
	return func() string {
		t.Helper()
		select {
		case e := <-events:
			return words(e)
		case <-time.After(patience):
			t.Fatal("no event came")
			return ""
		}
	}
}

func words(e client.Event) string {
	switch {
	case e.Synced():
		return "synced"
	case e.Old == nil:
		return "+" + e.New.GetName()
	case e.New == nil:
		return "-" + e.Old.GetName()
	}
	if e.Old.GetResourceVersion() == e.New.GetResourceVersion() {
		return "=" + e.New.GetName()
	}
	return "~" + e.New.GetName()
}

func expect(t *testing.T, next func() string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(); got != w {
			t.Fatalf("event %s, want %s", got, w)
		}
	}
}

func subscribe(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	must(maps.Create(t.Context(), configMap("before")))(t)
	scope := maps.Scope()
	scope.Namespace = namespace
	next := follow(t, c, scope)
	expect(t, next, "+before", "synced")
	made := must(maps.Create(t.Context(), configMap("a")))(t)
	expect(t, next, "+a")
	must(maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, []byte(`{"data":{"k":"w"}}`)))(t)
	expect(t, next, "~a")
	elsewhere := configMap("elsewhere")
	elsewhere.Namespace = "other"
	must(maps.Create(t.Context(), elsewhere))(t)
	if err := maps.Delete(t.Context(), namespace, made.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, next, "-a")
	must(maps.Create(t.Context(), configMap("a")))(t)
	expect(t, next, "+a")
}

func subscribeSelection(t *testing.T, c client.Interface) {
	maps := client.For[*corev1.ConfigMap](c)
	scope := maps.Scope()
	scope.Labels = labels.SelectorFromSet(labels.Set{"x": "y"})
	scope.Fields = fields.OneTermNotEqualSelector("metadata.name", "hidden")
	next := follow(t, c, scope)
	expect(t, next, "synced")
	must(maps.Create(t.Context(), configMap("hidden", "x=y")))(t)
	must(maps.Create(t.Context(), configMap("a")))(t)
	label := func(value string) {
		t.Helper()
		must(maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"x":%q}}}`, value)))(t)
	}
	label("y")
	expect(t, next, "+a")
	label("z")
	expect(t, next, "-a")
	label("y")
	expect(t, next, "+a")
}

func subscribeTwo(t *testing.T, c client.Interface) {
	maps, pods := client.For[*corev1.ConfigMap](c), client.For[*corev1.Pod](c)
	must(maps.Create(t.Context(), configMap("a")))(t)
	must(pods.Create(t.Context(), pod("p")))(t)
	mine := pods.Scope()
	mine.Fields = fields.OneTermEqualSelector("spec.nodeName", "n")
	mapScope := maps.Scope()
	mapScope.Namespace = namespace
	next := follow(t, c, mapScope, mine)
	expect(t, next, "+a", "synced")
	must(pods.Post(t.Context(), namespace, "p", "binding", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"},
	}))(t)
	expect(t, next, "+p")
	must(maps.Create(t.Context(), configMap("b")))(t)
	expect(t, next, "+b")
}

// lastState lets a slow handler miss steps, but not the last.
func lastState(t *testing.T, c client.Interface) {
	const steps = 50
	maps := client.For[*corev1.ConfigMap](c)
	scope := maps.Scope()
	scope.Namespace = namespace
	reached := make(chan struct{})
	synced := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Subscribe(ctx, func(e client.Event) {
			if e.Synced() {
				close(synced)
				return
			}
			time.Sleep(time.Millisecond)
			if obj, ok := e.New.(*corev1.ConfigMap); ok && obj.Data["step"] == fmt.Sprint(steps) {
				close(reached)
			}
		}, scope)
	}()
	select {
	case <-synced:
	case <-time.After(patience):
		t.Fatal("never synced")
	}
	must(maps.Create(t.Context(), configMap("a")))(t)
	for i := range steps {
		must(maps.Patch(t.Context(), namespace, "a", "", types.MergePatchType, fmt.Appendf(nil, `{"data":{"step":"%d"}}`, i+1)))(t)
	}
	select {
	case <-reached:
	case <-time.After(patience):
		t.Fatal("the last state did not arrive")
	}
	cancel()
	<-done
}
