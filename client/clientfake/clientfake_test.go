package clientfake_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string]string{"k": "v"}}
}

func replicaSet() *appsv1.ReplicaSet {
	set := map[string]string{"app": "a"}
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}, Spec: appsv1.ReplicaSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: set},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

func TestConflict(t *testing.T) {
	c := client.For[*corev1.ConfigMap](clientfake.New(builtin.Table()))
	first, err := c.Create(t.Context(), configMap("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), configMap("a")); !errors.IsAlreadyExists(err) {
		t.Errorf("second create: %v, want AlreadyExists", err)
	}
	change := first.DeepCopy()
	change.Data["k"] = "w"
	second, err := c.Update(t.Context(), change)
	if err != nil || second.ResourceVersion == first.ResourceVersion || first.Data["k"] != "v" {
		t.Errorf("update: %v, version %s after %s, first object %v", err, second.ResourceVersion, first.ResourceVersion, first.Data)
	}
	if _, err := c.Update(t.Context(), change); !errors.IsConflict(err) {
		t.Errorf("update of an old version: %v, want Conflict", err)
	}
	if same, err := c.Update(t.Context(), second.DeepCopy()); err != nil || same.ResourceVersion != second.ResourceVersion {
		t.Errorf("an update without a change: %v, version %s after %s", err, same.ResourceVersion, second.ResourceVersion)
	}
	if err := c.Delete(t.Context(), "ns", "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("other"))}}); !errors.IsConflict(err) {
		t.Errorf("delete of another uid: %v, want Conflict", err)
	}
	if err := c.Delete(t.Context(), "ns", "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), "ns", "a"); !errors.IsNotFound(err) {
		t.Errorf("get after delete: %v, want NotFound", err)
	}
}

func TestSpecAndStatusApart(t *testing.T) {
	c := client.For[*appsv1.ReplicaSet](clientfake.New(builtin.Table()))
	rs := replicaSet()
	rs.Status.Replicas = 9
	made, err := c.Create(t.Context(), rs)
	if err != nil {
		t.Fatal(err)
	}
	if made.Status.Replicas != 0 || made.Generation != 1 || *made.Spec.Replicas != 1 {
		t.Errorf("created with status %+v, generation %d, replicas %v: want none, 1, the default 1", made.Status, made.Generation, made.Spec.Replicas)
	}
	both := made.DeepCopy()
	both.Spec.Replicas, both.Status.Replicas = ptr.To[int32](3), 3
	status, err := c.UpdateStatus(t.Context(), both)
	if err != nil || *status.Spec.Replicas != 1 || status.Status.Replicas != 3 || status.Generation != 1 {
		t.Errorf("status update: %v, %d replicas wanted, %d there, generation %d", err, *status.Spec.Replicas, status.Status.Replicas, status.Generation)
	}
	both = status.DeepCopy()
	both.Spec.Replicas, both.Status.Replicas = ptr.To[int32](4), 4
	spec, err := c.Update(t.Context(), both)
	if err != nil || *spec.Spec.Replicas != 4 || spec.Status.Replicas != 3 || spec.Generation != 2 {
		t.Errorf("update: %v, %d replicas wanted, %d there, generation %d", err, *spec.Spec.Replicas, spec.Status.Replicas, spec.Generation)
	}
	bad := spec.DeepCopy()
	bad.Spec.Replicas = ptr.To[int32](-1)
	if _, err := c.Update(t.Context(), bad); !errors.IsInvalid(err) {
		t.Errorf("update to -1 replicas: %v, want Invalid", err)
	}
}

func TestFinalizersAndGrace(t *testing.T) {
	fake := clientfake.New(builtin.Table())
	c := client.For[*corev1.ConfigMap](fake)
	held := configMap("a")
	held.Finalizers = []string{"example.com/hold"}
	if _, err := c.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "ns", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	obj, err := c.Get(t.Context(), "ns", "a")
	if err != nil || obj.DeletionTimestamp == nil {
		t.Fatalf("with a finalizer: %v, deleted at %v", err, obj.GetDeletionTimestamp())
	}
	if _, err := c.Patch(t.Context(), "ns", "a", "", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "ns", "a"); !errors.IsNotFound(err) {
		t.Errorf("without the finalizer: %v, want NotFound", err)
	}

	pods := client.For[*corev1.Pod](fake)
	for name, node := range map[string]string{"waiting": "", "running": "n"} {
		if _, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), "ns", name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := pods.List(t.Context(), "ns", metav1.ListOptions{})
	if err != nil || len(left) != 1 || left[0].Name != "running" || *left[0].DeletionGracePeriodSeconds != 30 {
		t.Errorf("left %v (%v), want the pod on a node, with 30 s of grace", left, err)
	}
	if err := pods.Delete(t.Context(), "ns", "running", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "ns", "running"); !errors.IsNotFound(err) {
		t.Errorf("after a delete without grace: %v, want NotFound", err)
	}
}

func TestPatch(t *testing.T) {
	c := client.For[*corev1.ConfigMap](clientfake.New(builtin.Table()))
	if _, err := c.Create(t.Context(), configMap("a")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind types.PatchType
		data string
		want map[string]string
	}{
		{types.MergePatchType, `{"data":{"a":"1"}}`, map[string]string{"k": "v", "a": "1"}},
		{types.StrategicMergePatchType, `{"data":{"k":null}}`, map[string]string{"a": "1"}},
		{types.JSONPatchType, `[{"op":"add","path":"/data/b","value":"2"}]`, map[string]string{"a": "1", "b": "2"}},
	} {
		got, err := c.Patch(t.Context(), "ns", "a", "", test.kind, []byte(test.data))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(test.want, got.Data); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.kind, d)
		}
	}
	if _, err := c.Patch(t.Context(), "ns", "a", "", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"}}`)); !errors.IsConflict(err) {
		t.Errorf("patch of an old version: %v, want Conflict", err)
	}
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := clientfake.New(builtin.Table(), configMap("before"))
		c := client.For[*corev1.ConfigMap](fake)
		scope := c.Scope()
		scope.Fields = fields.OneTermNotEqualSelector("metadata.name", "hidden")
		var got []string
		ctx, cancel := context.WithCancel(t.Context())
		go fake.Subscribe(ctx, func(e client.Event) {
			switch {
			case e.Synced():
				got = append(got, "synced")
			case e.Old == nil:
				got = append(got, "+"+e.New.GetName())
			case e.New == nil:
				got = append(got, "-"+e.Old.GetName())
			default:
				got = append(got, "~"+e.New.GetName())
			}
		}, scope)
		synctest.Wait()
		for _, name := range []string{"a", "hidden"} {
			if _, err := c.Create(ctx, configMap(name)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Patch(ctx, "ns", "a", "", types.MergePatchType, []byte(`{"data":{"k":"w"}}`)); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, "ns", "before", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := cmp.Diff([]string{"+before", "synced", "+a", "~a", "-before"}, got); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		var names []string
		for obj := range fake.Lister(ctx, scope).All("ns") {
			names = append(names, obj.GetName())
		}
		if d := cmp.Diff([]string{"a"}, names); d != "" {
			t.Errorf("lister (-want +got):\n%s", d)
		}
		cancel()
		synctest.Wait()
	})
}
