package api

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestNewerFieldsExist(t *testing.T) {
	for kind, names := range newerFields() {
		for name := range strings.FieldsSeq(names) {
			if _, ok := kind.FieldByName(name); !ok {
				t.Errorf("%v has no field %s", kind, name)
			}
		}
		if names == "" {
			t.Errorf("%v lists no field", kind)
		}
	}
}

func TestPruneNewer(t *testing.T) {
	name := "elsewhere"
	signal := corev1.SIGHUP
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.HostnameOverride = &name
	d.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b", Lifecycle: &corev1.Lifecycle{StopSignal: &signal}}}
	d.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		RestartPolicyRules: []corev1.ContainerRestartRule{{}}}}}
	want := []string{
		"spec.template.spec.hostnameOverride",
		"spec.template.spec.containers[1].lifecycle.stopSignal",
		"spec.template.spec.ephemeralContainers[0].restartPolicyRules",
	}
	if diff := cmp.Diff(want, PruneNewer(d), cmp.Transformer("sorted", func(s []string) map[string]bool {
		m := map[string]bool{}
		for _, v := range s {
			m[v] = true
		}
		return m
	})); diff != "" {
		t.Errorf("pruned paths (-want +got):\n%s", diff)
	}
	if d.Spec.Template.Spec.HostnameOverride != nil || d.Spec.Template.Spec.Containers[1].Lifecycle.StopSignal != nil {
		t.Error("fields are still set")
	}
	if d.Spec.Template.Spec.Resources == nil {
		t.Error("pod-level resources, which are served, are gone")
	}
	if got := PruneNewer(d); got != nil {
		t.Errorf("second time: %v", got)
	}
	if p := prunerOf(reflect.TypeFor[corev1.ConfigMap]()); p != nil {
		t.Errorf("config maps are looked into: %+v", p)
	}
}

func BenchmarkPruneNewer(b *testing.B) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Containers: make([]corev1.Container, 3), InitContainers: make([]corev1.Container, 1), Volumes: make([]corev1.Volume, 4),
	}}
	b.ReportAllocs()
	for b.Loop() {
		if PruneNewer(pod) != nil {
			b.Fatal("found something")
		}
	}
}
