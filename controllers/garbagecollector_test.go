package controllers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
)

// ownedMap makes a ConfigMap with owners; those whose name ends in "!" are blocked by it.
func ownedMap(c *cluster, name string, owners ...string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	for _, o := range owners {
		o, blocks := strings.CutSuffix(o, "!")
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: o, UID: "absent", BlockOwnerDeletion: &blocks}
		if owner, err := client.For[*corev1.ConfigMap](c).Get(context.Background(), "ns", o); err == nil {
			ref.UID = owner.UID
		}
		m.OwnerReferences = append(m.OwnerReferences, ref)
	}
	return create(c, m)
}

func (c *cluster) maps() string {
	list, err := client.For[*corev1.ConfigMap](c).List(context.Background(), "ns", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, m := range list {
		s := m.Name
		for _, o := range m.OwnerReferences {
			s += "<" + o.Name
		}
		if m.DeletionTimestamp != nil {
			s += "(deleting)"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (c *cluster) deleteMap(name string, policy metav1.DeletionPropagation) {
	c.t.Helper()
	if err := client.For[*corev1.ConfigMap](c).Delete(context.Background(), "ns", name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func TestGarbageCollector(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy metav1.DeletionPropagation
		make   [][]string // an object and its owners; "a" is deleted
		hold   string     // has a finalizer of somebody else
		want   string
	}{
		{"background takes the whole tree", "Background", [][]string{{"a"}, {"b", "a"}, {"c", "b"}, {"d"}}, "", "d"},
		{"a second owner keeps the object", "Background", [][]string{{"a"}, {"b"}, {"c", "a", "b"}}, "", "b c<b"},
		{"orphans lose the owner and stay", "Orphan", [][]string{{"a"}, {"b", "a!"}, {"c", "b"}}, "", "b c<b"},
		{"foreground takes the whole tree", "Foreground", [][]string{{"a"}, {"b", "a!"}, {"c", "b!"}}, "", ""},
		{"foreground waits for what blocks", "Foreground", [][]string{{"a"}, {"b", "a!"}, {"c", "b!"}}, "c", "a(deleting) b<a(deleting) c<b(deleting)"},
		{"foreground does not wait for others", "Foreground", [][]string{{"a"}, {"b", "a"}}, "b", "b<a(deleting)"},
		{"foreground leaves what others own, unblocked", "Foreground", [][]string{{"a"}, {"b"}, {"c", "a!", "b!"}}, "", "b c<b"},
		{"an owner that never was", "Background", [][]string{{"a"}, {"b"}, {"c", "nobody"}, {"d", "nobody", "b"}}, "", "b d<b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "garbage-collector-controller")
				for _, m := range test.make {
					ownedMap(c, m[0], m[1:]...)
				}
				if test.hold != "" {
					edit(c, test.hold, func(m *corev1.ConfigMap) { m.Finalizers = append(m.Finalizers, "example.com/hold") })
				}
				c.deleteMap("a", test.policy)
				if got := c.maps(); got != test.want {
					t.Errorf("left %q, want %q", got, test.want)
				}
				if test.hold != "" {
					edit(c, test.hold, func(m *corev1.ConfigMap) {
						m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == "example.com/hold" })
					})
					if got := c.maps(); got != "" {
						t.Errorf("left %q once nothing was held", got)
					}
				}
			})
		})
	}
}

func TestGarbageCollectorCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "garbage-collector-controller")
		a := ownedMap(c, "a")
		ownedMap(c, "b", "a!")
		last := ownedMap(c, "c", "b!")
		edit(c, "a", func(m *corev1.ConfigMap) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: last.UID, BlockOwnerDeletion: ptr.To(true)}}
		})
		c.deleteMap(a.Name, metav1.DeletePropagationForeground)
		if got := c.maps(); got != "" {
			t.Errorf("left %q of a circle", got)
		}
	})
}
