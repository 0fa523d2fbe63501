package controllers

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"proa/client"
)

// TestClaimProtection checks which pods keep a deleted claim.
func TestClaimProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "persistentvolumeclaim-protection-controller")
		oneGi := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		ctx, claims := context.Background(), client.For[*corev1.PersistentVolumeClaim](c)
		named := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "p-data"}}
		ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
		for i, test := range []struct {
			name   string
			node   string
			volume corev1.VolumeSource
			owner  types.UID
			kept   bool
		}{
			{"claim of a pod on a node", "n", named, "", true},
			{"claim of a pod on no node", "", named, "", false},
			{"claim of no pod", "n", corev1.VolumeSource{}, "", false},
			{"claim made for the pod", "n", ephemeral, "uid", true},
			{"claim made for another pod", "n", ephemeral, "other", false},
		} {
			ns := fmt.Sprintf("ns%d", i)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: "uid"},
				Spec:       corev1.PodSpec{NodeName: test.node, Volumes: []corev1.Volume{{Name: "data", VolumeSource: test.volume}}},
			}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: "p-data", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"a/b", pvcFinalizer},
			}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem),
				Resources: corev1.VolumeResourceRequirements{Requests: oneGi},
			}}
			if test.owner != "" {
				claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: test.owner, Controller: ptr.To(true)}}
			}
			c.Put(pod)
			c.Put(claim)
			c.settle()
			kept := func() bool {
				have, err := claims.Get(ctx, ns, "p-data")
				if err != nil {
					t.Fatal(err)
				}
				return len(have.Finalizers) == 2
			}
			if kept() != test.kept {
				t.Errorf("%s: kept %v, want %v", test.name, kept(), test.kept)
			}
			c.Remove(pod)
			c.settle()
			if kept() {
				t.Errorf("%s: kept after the pod is gone", test.name)
			}
		}
	})
}

// TestVolumeProtection checks that a deleted volume stays while it is bound.
func TestVolumeProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "persistentvolume-protection-controller")
		oneGi := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
			Name: "v", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"a/b", pvFinalizer},
		}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeFilesystem), Capacity: oneGi,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v", Type: ptr.To(corev1.HostPathUnset)}},
		}}
		for _, step := range []struct {
			phase corev1.PersistentVolumePhase
			want  int
		}{{corev1.VolumeBound, 2}, {corev1.VolumeReleased, 1}} {
			volume.Status.Phase = step.phase
			c.Put(volume.DeepCopy())
			c.settle()
			have, err := client.For[*corev1.PersistentVolume](c).Get(context.Background(), "", "v")
			if err != nil {
				t.Fatal(err)
			}
			if len(have.Finalizers) != step.want {
				t.Errorf("%s: finalizers %v, want %d", step.phase, have.Finalizers, step.want)
			}
		}
	})
}
