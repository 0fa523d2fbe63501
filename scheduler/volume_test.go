package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

func testClass(name, provisioner string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
}

func testClaim(class, volume string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", UID: "c"}}
	c.Spec.StorageClassName, c.Spec.VolumeName = &class, volume
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	mode := corev1.PersistentVolumeFilesystem
	c.Spec.VolumeMode = &mode
	c.Status.Phase = corev1.ClaimPending
	if volume != "" {
		c.Status.Phase = corev1.ClaimBound
	}
	return c
}

// testVolume can be reached from one node.
func testVolume(class, node string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	v.Spec.StorageClassName = class
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	mode := corev1.PersistentVolumeFilesystem
	v.Spec.VolumeMode = &mode
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	v.Status.Phase = corev1.VolumeAvailable
	return v
}

func withClaim(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}}
}

func TestVolumes(t *testing.T) {
	wait, immediate := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	tail := " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
	cases := []struct {
		name    string
		class   *storagev1.StorageClass
		claim   *corev1.PersistentVolumeClaim
		volume  *corev1.PersistentVolume
		node    string // where the pod goes at once
		message string
		// chosen is the node that a provisioner is told, claimed that the volume is bound to the claim.
		chosen  string
		claimed bool
	}{
		{name: "no claim", message: `0/2 nodes are available: persistentvolumeclaim "c" not found.` + tail},
		{name: "immediate, unbound", class: testClass("x", "p", immediate), claim: testClaim("x", ""),
			message: "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims." + tail},
		{name: "bound", class: testClass("x", "p", immediate), claim: testClaim("x", "v"), volume: testVolume("x", "b"), node: "b"},
		{name: "bound elsewhere", class: testClass("x", "p", immediate), claim: testClaim("x", "v"), volume: testVolume("x", "z"),
			message: "0/2 nodes are available: 2 node(s) had volume node affinity conflict." + tail},
		{name: "waits, provisioned", class: testClass("x", "p", wait), claim: testClaim("x", ""), chosen: "any"},
		{name: "waits, made by hand", class: testClass("x", noProvisioner, wait), claim: testClaim("x", ""), volume: testVolume("x", "b"), claimed: true},
		{name: "waits, none made", class: testClass("x", noProvisioner, wait), claim: testClaim("x", ""),
			message: "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind." + tail},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, testNode("a", "4"), testNode("b", "4"))
				if c.class != nil {
					l.Put(c.class)
				}
				if c.claim != nil {
					l.Put(c.claim)
				}
				if c.volume != nil {
					l.Put(c.volume)
				}
				synctest.Wait()
				l.Put(testPod("p", "1", withClaim))
				synctest.Wait()
				if got := l.nodeOf("p"); got != c.node {
					t.Errorf("on node %q, want %q", got, c.node)
				}
				if c.message != "" && l.refusal("p") != "Unschedulable: "+c.message {
					t.Errorf("condition %q, want %q", l.refusal("p"), c.message)
				}
				if c.chosen == "" && !c.claimed {
					return
				}
				// Once the claim is bound, as its controller does, so is the pod.
				claim, err := client.For[*corev1.PersistentVolumeClaim](l.Client).Get(t.Context(), "ns", "c")
				if err != nil {
					t.Fatal(err)
				}
				want := "b"
				if c.claimed {
					v, err := client.For[*corev1.PersistentVolume](l.Client).Get(t.Context(), "", "v")
					if err != nil {
						t.Fatal(err)
					}
					if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.Name != "c" {
						t.Errorf("volume has claimRef %v, want c; %s", v.Spec.ClaimRef, l.refusal("p"))
					}
				} else if want = claim.Annotations[selectedNode]; want == "" {
					t.Fatalf("no node selected for the claim; %s", l.refusal("p"))
				}
				next := claim.DeepCopy()
				next.Spec.VolumeName, next.Status.Phase = "v", corev1.ClaimBound
				l.Put(next)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := l.nodeOf("p"); got != want {
					t.Errorf("after binding the claim on %q, want %q; %s", got, want, l.refusal("p"))
				}
			})
		})
	}
}
