package controllers

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
)

// kubectl rollout undo applies what a revision stores as a strategic merge patch.
func TestRevisionIsAPatch(t *testing.T) {
	old, set := statefulSet(1, plainSet), statefulSet(1, plainSet)
	set.Spec.Template.Spec.Containers[0].Image = "b"
	set.Spec.Template.Annotations = map[string]string{"added": "later"}
	patch, err := templatePatch(&old.Spec.Template)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, set)
	if err != nil {
		t.Fatal(err)
	}
	var got appsv1.StatefulSet
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(old.Spec.Template, got.Spec.Template); d != "" {
		t.Errorf("template after the undo (-want +got):\n%s", d)
	}
}

func TestHistory(t *testing.T) {
	ctx := t.Context()
	fake := clientfake.New(builtin.Table())
	owner := fake.Put(statefulSet(1, plainSet)).(*appsv1.StatefulSet)
	kind := appsv1.SchemeGroupVersion.WithKind("StatefulSet")
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	h := newHistory(ctx, Deps{Client: fake})
	collisions := int32(0)
	current := func(image string) *appsv1.ControllerRevision {
		t.Helper()
		all, err := h.list(ctx, owner, kind, selector)
		if err != nil {
			t.Fatal(err)
		}
		template := podTemplate("web", image)
		r, _, err := h.current(ctx, owner, kind, &template, all, &collisions, true)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := current("a"), current("b")
	if a.Revision != 1 || b.Revision != 2 || a.Labels[appsv1.ControllerRevisionHashLabelKey] == b.Labels[appsv1.ControllerRevisionHashLabelKey] {
		t.Errorf("revisions %d and %d, labels %v and %v", a.Revision, b.Revision, a.Labels, b.Labels)
	}
	if again := current("b"); again.Name != b.Name || again.Revision != 2 {
		t.Errorf("the same template became revision %s %d", again.Name, again.Revision)
	}
	if back := current("a"); back.Name != a.Name || back.Revision != 3 {
		t.Errorf("the earlier template became revision %s %d, want %s 3", back.Name, back.Revision, a.Name)
	}

	// Orphans are adopted.
	orphan := current("c").DeepCopy()
	orphan.OwnerReferences = nil
	fake.Put(orphan)
	if all, err := h.list(ctx, owner, kind, selector); err != nil || len(all) != 3 || !metav1.IsControlledBy(all[2], owner) {
		t.Errorf("%d revisions (%v), want 3 with the orphan adopted", len(all), err)
	}

	// A name that another template has is avoided.
	access := client.For[*appsv1.ControllerRevision](fake)
	d := current("d").DeepCopy()
	if err := access.Delete(ctx, d.Namespace, d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	squatter := d.DeepCopy()
	squatter.OwnerReferences, squatter.Labels, squatter.UID, squatter.Data.Raw = nil, nil, "", []byte(`{}`)
	fake.Put(squatter)
	if got := current("d"); got.Name == d.Name || collisions != 1 {
		t.Errorf("revision %s with %d collisions, want another name and 1", got.Name, collisions)
	}

	all, err := h.list(ctx, owner, kind, selector)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.trim(ctx, all, ptr.To[int32](1), func(r *appsv1.ControllerRevision) bool { return r.Name == b.Name }); err != nil {
		t.Fatal(err)
	}
	left, err := h.list(ctx, owner, kind, selector)
	if err != nil || len(left) != 2 || left[0].Name != b.Name || left[1].Revision != all[len(all)-1].Revision {
		t.Errorf("%d revisions are left (%v), want the live one and the newest other", len(left), err)
	}
}

func TestTemplatePatchIsWhatClientsEncode(t *testing.T) {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	got, err := templatePatch(&template)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"b"}},"spec":{"containers":null}}}}`
	if string(got) != want {
		t.Errorf("the patch is %s, want %s", got, want)
	}
}
