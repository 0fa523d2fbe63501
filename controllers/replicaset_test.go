package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/client/clientfake"
)

func replicaSet(n int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &n, Selector: selectApp("web"), Template: podTemplate("web", "a")},
	}
}

func TestReplicaSetScales(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		create(c, replicaSet(700)) // more than one burst
		if n := len(c.pods()); n != 700 {
			t.Fatalf("%d pods, want 700", n)
		}
		pod := c.pods()[0]
		if ref := metav1.GetControllerOf(pod); ref == nil || ref.Kind != "ReplicaSet" || ref.Name != "web" || !strings.HasPrefix(pod.Name, "web-") {
			t.Errorf("pod %s has controller %v", pod.Name, ref)
		}
		c.wantEvent("Normal SuccessfulCreate Created pod: " + pod.Name)
		got := read[*appsv1.ReplicaSet](c, "web").Status
		want := appsv1.ReplicaSetStatus{Replicas: 700, FullyLabeledReplicas: 700, ReadyReplicas: 700, AvailableReplicas: 700, ObservedGeneration: 1}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("status (-want +got):\n%s", d)
		}
		edit(c, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](2) })
		if n := len(c.pods()); n != 2 {
			t.Errorf("%d pods after scaling down, want 2", n)
		}
	})
}

func TestReplicaSetDeletesCheapestPod(t *testing.T) {
	for name, mark := range map[string]func(c *cluster, pod string){
		"not ready": func(c *cluster, pod string) {
			p := read[*corev1.Pod](c, pod).DeepCopy()
			p.Status.Conditions[0].Status = corev1.ConditionFalse
			c.Put(p)
		},
		"unscheduled": func(c *cluster, pod string) { c.setPod(pod, corev1.PodPending) },
		"deletion cost": func(c *cluster, pod string) {
			p := read[*corev1.Pod](c, pod).DeepCopy()
			p.Annotations = map[string]string{corev1.PodDeletionCost: "-5"}
			c.Put(p)
		},
		"restarted": func(c *cluster, pod string) {
			p := read[*corev1.Pod](c, pod).DeepCopy()
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: 3}}
			c.Put(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "replicaset-controller")
				create(c, replicaSet(3))
				c.holdIf(func(*corev1.Pod) bool { return true })
				victim := c.pods()[1].Name
				mark(c, victim)
				c.settle()
				edit(c, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](2) })
				if got := c.podNames(); strings.Contains(got, victim) || len(c.pods()) != 2 {
					t.Errorf("left are %s, want two without %s", got, victim)
				}
			})
		})
	}
}

func TestReplicaSetAdoptsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		template := podTemplate("web", "a")
		create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stray", Namespace: "ns", Labels: template.Labels}, Spec: template.Spec})
		create(c, replicaSet(2))
		rs := read[*appsv1.ReplicaSet](c, "web")
		if len(c.pods()) != 2 || !metav1.IsControlledBy(read[*corev1.Pod](c, "stray"), rs) {
			t.Fatalf("pods %s: want the stray one adopted and one more", c.podNames())
		}
		edit(c, "stray", func(p *corev1.Pod) { p.Labels["app"] = "other" })
		if ref := metav1.GetControllerOf(read[*corev1.Pod](c, "stray")); ref != nil {
			t.Errorf("the pod still has the controller %v", ref)
		}
		if len(c.pods()) != 3 {
			t.Errorf("pods %s: want a replacement", c.podNames())
		}
	})
}

func TestReplicaSetFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		refuse := func(call clientfake.Call) error {
			if call.Verb == "create" && call.Resource.Plural == "pods" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("no"))
			}
			return nil
		}
		c.FailWith(refuse)
		create(c, replicaSet(50))
		creates := 0
		for _, call := range c.Calls() {
			if call.Verb == "create" && call.Resource.Plural == "pods" {
				creates++
			}
		}
		if creates > 20 {
			t.Errorf("%d hopeless calls within half a second, want few: each step ends with its first batch", creates)
		}
		conditions := read[*appsv1.ReplicaSet](c, "web").Status.Conditions
		if len(conditions) != 1 || conditions[0].Type != appsv1.ReplicaSetReplicaFailure || conditions[0].Reason != "FailedCreate" {
			t.Errorf("conditions %v, want ReplicaFailure FailedCreate", conditions)
		}
		c.wantEvent(`Warning FailedCreate Error creating: pods is forbidden: no`)
		c.FailWith(nil)
		time.Sleep(time.Minute)
		c.settle()
		rs := read[*appsv1.ReplicaSet](c, "web")
		if len(c.pods()) != 50 || len(rs.Status.Conditions) != 0 {
			t.Errorf("after the obstacle went: %d pods and conditions %v, want 50 and none", len(c.pods()), rs.Status.Conditions)
		}
	})
}

func TestReplicaSetRefusedDeleteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		create(c, replicaSet(3))
		c.FailWith(func(call clientfake.Call) error {
			if call.Verb == "delete" {
				return apierrors.NewInternalError(fmt.Errorf("no"))
			}
			return nil
		})
		edit(c, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = ptr.To[int32](1) })
		c.FailWith(nil)
		time.Sleep(time.Minute)
		if n := len(c.pods()); n != 1 {
			t.Errorf("%d pods, want 1", n)
		}
	})
}

func TestReplicaSetMinReadySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		rs := replicaSet(1)
		rs.Spec.MinReadySeconds = 30
		create(c, rs)
		if s := read[*appsv1.ReplicaSet](c, "web").Status; s.ReadyReplicas != 1 || s.AvailableReplicas != 0 {
			t.Errorf("at first %d ready and %d available, want 1 and 0", s.ReadyReplicas, s.AvailableReplicas)
		}
		time.Sleep(31 * time.Second)
		c.settle()
		if s := read[*appsv1.ReplicaSet](c, "web").Status; s.AvailableReplicas != 1 {
			t.Errorf("after minReadySeconds %d available, want 1", s.AvailableReplicas)
		}
	})
}

func TestReplicaSetReplacesEndedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replicaset-controller")
		create(c, replicaSet(2))
		c.setPod(c.pods()[0].Name, corev1.PodFailed)
		if err := client.For[*corev1.Pod](c).Delete(context.Background(), "ns", c.pods()[1].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle()
		if s := read[*appsv1.ReplicaSet](c, "web").Status; s.Replicas != 2 || s.ReadyReplicas != 2 {
			t.Errorf("status %+v, want 2 ready replicas", s)
		}
	})
}

func TestReplicationController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "replication-controller")
		create(c, &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](3), Selector: map[string]string{"app": "web"}, Template: ptr.To(podTemplate("web", "a"))},
		})
		want := corev1.ReplicationControllerStatus{Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3, ObservedGeneration: 1}
		if d := cmp.Diff(want, read[*corev1.ReplicationController](c, "web").Status, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("status (-want +got):\n%s", d)
		}
	})
}
