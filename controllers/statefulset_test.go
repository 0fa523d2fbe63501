package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
)

func statefulSet(n int32, change func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec:       appsv1.StatefulSetSpec{Replicas: &n, ServiceName: "svc", Selector: selectApp("web"), Template: podTemplate("web", "a")},
	}
	change(&s.Spec)
	return s
}

func plainSet(*appsv1.StatefulSetSpec) {}

func withClaims(deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSetSpec) {
	return func(s *appsv1.StatefulSetSpec) {
		s.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}}
		s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: deleted, WhenScaled: scaled}
	}
}

// images is "pod:image ..." of all pods.
func (c *cluster) images() string {
	var out []string
	for _, p := range c.pods() {
		out = append(out, p.Name+":"+p.Spec.Containers[0].Image)
	}
	return strings.Join(out, " ")
}

func setStatefulImage(c *cluster, image string) {
	edit(c, "web", func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = image })
}

func TestStatefulSetInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		c.holdIf(always)
		create(c, statefulSet(3, plainSet))
		for i, want := range []string{"web-0", "web-0 web-1", "web-0 web-1 web-2"} {
			if got := c.podNames(); got != want {
				t.Fatalf("pods %q, want %q", got, want)
			}
			c.setPod(fmt.Sprintf("web-%d", i), corev1.PodRunning)
			c.settle()
		}
		pod := read[*corev1.Pod](c, "web-1")
		set := read[*appsv1.StatefulSet](c, "web")
		if pod.Spec.Hostname != "web-1" || pod.Spec.Subdomain != "svc" || pod.Labels[appsv1.StatefulSetPodNameLabel] != "web-1" ||
			pod.Labels[appsv1.PodIndexLabel] != "1" || pod.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.CurrentRevision {
			t.Errorf("pod has host %s.%s and labels %v", pod.Spec.Hostname, pod.Spec.Subdomain, pod.Labels)
		}
		c.wantEvent("Normal SuccessfulCreate create Pod web-1 in StatefulSet web successful")
		s := set.Status
		if s.Replicas != 3 || s.ReadyReplicas != 3 || s.AvailableReplicas != 3 || s.CurrentReplicas != 3 || s.UpdatedReplicas != 3 || s.CurrentRevision != s.UpdateRevision {
			t.Errorf("status %+v", s)
		}
		// Down from the top, and only while the others are well.
		gone := []string{}
		c.watch(func(e client.Event) {
			if p, ok := e.Old.(*corev1.Pod); ok && e.New == nil {
				gone = append(gone, p.Name)
			}
		}, client.For[*corev1.Pod](c).Scope())
		edit(c, "web", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
		if got := strings.Join(gone, " "); got != "web-2 web-1" {
			t.Errorf("deleted %q, want web-2 and then web-1", got)
		}
		c.wantEvent("Normal SuccessfulDelete delete Pod web-2 in StatefulSet web successful")
	})
}

// TestStatefulSetHalts checks that a scale to nothing waits for pods that are not well, from the first on.
func TestStatefulSetHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		create(c, statefulSet(3, plainSet))
		c.holdIf(always)
		for _, name := range []string{"web-0", "web-1", "web-2"} {
			c.setPod(name, corev1.PodPending)
		}
		c.settle()
		edit(c, "web", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](0) })
		c.settle()
		if got, want := c.podNames(), "web-0 web-1 web-2"; got != want {
			t.Errorf("pods %q while none is well, want %q", got, want)
		}
		c.setPod("web-0", corev1.PodRunning)
		c.settle()
		if got, want := c.podNames(), "web-0 web-1 web-2"; got != want {
			t.Errorf("pods %q while web-1 is not well, want %q", got, want)
		}
		c.setPod("web-1", corev1.PodRunning)
		c.settle()
		if got := c.podNames(); got != "" {
			t.Errorf("pods %q are left", got)
		}
	})
}

func TestStatefulSetParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		c.holdIf(always)
		create(c, statefulSet(3, func(s *appsv1.StatefulSetSpec) {
			s.PodManagementPolicy = appsv1.ParallelPodManagement
			s.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
		}))
		if got, want := c.podNames(), "web-5 web-6 web-7"; got != want {
			t.Errorf("pods %q at once, want %q", got, want)
		}
	})
}

func TestStatefulSetRollsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		create(c, statefulSet(3, plainSet))
		first := read[*appsv1.StatefulSet](c, "web").Status.CurrentRevision
		c.holdIf(func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "b" })
		setStatefulImage(c, "b")
		if got, want := c.images(), "web-0:a web-1:a web-2:b"; got != want {
			t.Errorf("under way %q, want %q", got, want)
		}
		s := read[*appsv1.StatefulSet](c, "web").Status
		if s.CurrentRevision != first || s.UpdateRevision == first || s.CurrentReplicas != 2 || s.UpdatedReplicas != 1 {
			t.Errorf("under way status %+v", s)
		}
		c.holdIf(never)
		c.setPod("web-2", corev1.PodRunning)
		c.settle()
		if got, want := c.images(), "web-0:b web-1:b web-2:b"; got != want {
			t.Errorf("arrived at %q, want %q", got, want)
		}
		s = read[*appsv1.StatefulSet](c, "web").Status
		if s.CurrentRevision != s.UpdateRevision || s.CurrentReplicas != 3 {
			t.Errorf("arrived with status %+v", s)
		}
		setStatefulImage(c, "a") // as kubectl rollout undo does
		if s := read[*appsv1.StatefulSet](c, "web").Status; s.CurrentRevision != first {
			t.Errorf("after the undo the revision is %s, want %s again", s.CurrentRevision, first)
		}
		revisions, err := client.For[*appsv1.ControllerRevision](c).List(context.Background(), "ns", metav1.ListOptions{})
		if err != nil || len(revisions) != 2 {
			t.Fatalf("%d revisions (%v), want 2", len(revisions), err)
		}
		if i := slices.IndexFunc(revisions, func(r *appsv1.ControllerRevision) bool { return r.Name == first }); revisions[i].Revision != 3 {
			t.Errorf("the revision has number %d after the undo, want 3", revisions[i].Revision)
		}
	})
}

func TestStatefulSetUpdateStrategies(t *testing.T) {
	for name, test := range map[string]struct {
		strategy appsv1.StatefulSetUpdateStrategy
		start    int32
		want     string
		replaced string // what a deleted first pod comes back as
	}{
		"partition": {appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2)},
		}, 0, "web-0:a web-1:a web-2:b", "web-0:a"},
		"partition counts from the start": {appsv1.StatefulSetUpdateStrategy{
			Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2)},
		}, 4, "web-4:a web-5:a web-6:b", "web-4:a"},
		"on delete": {appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}, 0, "web-0:a web-1:a web-2:a", "web-0:b"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "statefulset-controller")
				create(c, statefulSet(3, func(s *appsv1.StatefulSetSpec) {
					s.UpdateStrategy = test.strategy
					s.Ordinals = &appsv1.StatefulSetOrdinals{Start: test.start}
				}))
				setStatefulImage(c, "b")
				if got := c.images(); got != test.want {
					t.Errorf("pods %q, want %q", got, test.want)
				}
				first, _, _ := strings.Cut(test.replaced, ":")
				if err := client.For[*corev1.Pod](c).Delete(context.Background(), "ns", first, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				c.settle()
				if got := c.images(); !strings.Contains(got, test.replaced) {
					t.Errorf("pods %q after a delete, want %q among them", got, test.replaced)
				}
			})
		})
	}
}

func TestStatefulSetMinReadySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		create(c, statefulSet(2, func(s *appsv1.StatefulSetSpec) { s.MinReadySeconds = 30 }))
		if got := c.podNames(); got != "web-0" {
			t.Errorf("pods %q before the first is available, want web-0", got)
		}
		time.Sleep(31 * time.Second)
		c.settle()
		if got := c.podNames(); got != "web-0 web-1" {
			t.Errorf("pods %q after minReadySeconds, want both", got)
		}
	})
}

func TestStatefulSetReplacesFailedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "statefulset-controller")
		create(c, statefulSet(2, plainSet))
		before := read[*corev1.Pod](c, "web-1").UID
		c.setPod("web-1", corev1.PodFailed)
		c.settle()
		if p := read[*corev1.Pod](c, "web-1"); p.UID == before || !healthy(p) {
			t.Errorf("the failed pod was not replaced: %s", p.Status.Phase)
		}
		c.wantEvent("Warning RecreatingFailedPod StatefulSet ns/web is recreating failed Pod web-1")
	})
}

func TestStatefulSetClaims(t *testing.T) {
	const retain, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for _, test := range []struct {
		deleted, scaled     appsv1.PersistentVolumeClaimRetentionPolicyType
		owner, condemnedFor string // kind of the owner of a kept pod's claim, and of that of a pod scaled away
	}{
		{retain, retain, "", ""},
		{remove, retain, "StatefulSet", "StatefulSet"},
		{retain, remove, "", "Pod"},
		{remove, remove, "StatefulSet", "Pod"},
	} {
		t.Run(fmt.Sprintf("deleted %s scaled %s", test.deleted, test.scaled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "statefulset-controller")
				create(c, statefulSet(2, withClaims(test.deleted, test.scaled)))
				pod := read[*corev1.Pod](c, "web-1")
				if v := pod.Spec.Volumes[0]; v.Name != "data" || v.PersistentVolumeClaim == nil || v.PersistentVolumeClaim.ClaimName != "data-web-1" {
					t.Errorf("pod has the volume %v", v)
				}
				owner := func(claim string) string {
					refs := read[*corev1.PersistentVolumeClaim](c, claim).OwnerReferences
					if len(refs) == 0 {
						return ""
					}
					return refs[0].Kind
				}
				if got := owner("data-web-0"); got != test.owner {
					t.Errorf("claim of a kept pod belongs to %q, want %q", got, test.owner)
				}
				edit(c, "web", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr.To[int32](1) })
				if got := owner("data-web-1"); got != test.condemnedFor {
					t.Errorf("claim of a pod scaled away belongs to %q, want %q", got, test.condemnedFor)
				}
				// Policies may change.
				edit(c, "web", func(s *appsv1.StatefulSet) {
					s.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain}
				})
				if got := owner("data-web-0"); got != "" {
					t.Errorf("with the policy Retain the claim belongs to %q, want nobody", got)
				}
			})
		})
	}
}
