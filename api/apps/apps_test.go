package apps

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image:1"}}},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func deployment(change func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DeploymentSpec{Selector: selector(), Template: template()}}
	deployments().Default(d)
	change(d)
	return d
}

func statefulSet(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.StatefulSetSpec{Selector: selector(), Template: template()}}
	statefulSets().Default(s)
	change(s)
	return s
}

func daemonSet(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: template()}}
	daemonSets().Default(ds)
	change(ds)
	return ds
}

func check(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, string(err.Type)+" "+err.Field)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s%v", diff, errs)
	}
}

func TestDefaults(t *testing.T) {
	d := deployment(func(*appsv1.Deployment) {})
	quarter := intstr.FromString("25%")
	want := appsv1.DeploymentStrategy{Type: "RollingUpdate", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &quarter}}
	if diff := cmp.Diff(want, d.Spec.Strategy); diff != "" {
		t.Errorf("strategy (-want +got):\n%s", diff)
	}
	if *d.Spec.Replicas != 1 || *d.Spec.RevisionHistoryLimit != 10 || *d.Spec.ProgressDeadlineSeconds != 600 {
		t.Errorf("deployment: %+v", d.Spec)
	}
	s := statefulSet(func(s *appsv1.StatefulSet) {})
	if s.Spec.PodManagementPolicy != "OrderedReady" || *s.Spec.UpdateStrategy.RollingUpdate.Partition != 0 ||
		s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != "Retain" || s.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled != "Retain" {
		t.Errorf("stateful set: %+v", s.Spec)
	}
	ds := daemonSet(func(*appsv1.DaemonSet) {})
	if r := ds.Spec.UpdateStrategy.RollingUpdate; r.MaxUnavailable.IntVal != 1 || r.MaxSurge.IntVal != 0 {
		t.Errorf("daemon set: %+v", r)
	}
}

func TestDeploymentValidation(t *testing.T) {
	zero, much := intstr.FromInt32(0), intstr.FromString("101%")
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   []string
	}{
		"fine":         {func(d *appsv1.Deployment) {}, nil},
		"no selector":  {func(d *appsv1.Deployment) { d.Spec.Selector = nil }, []string{"FieldValueRequired spec.selector", "FieldValueInvalid spec.template.metadata.labels"}},
		"no match":     {func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil }, []string{"FieldValueInvalid spec.template.metadata.labels"}},
		"negative":     {func(d *appsv1.Deployment) { n := int32(-1); d.Spec.Replicas = &n }, []string{"FieldValueInvalid spec.replicas"}},
		"deadline":     {func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 600 }, []string{"FieldValueInvalid spec.progressDeadlineSeconds"}},
		"recreate":     {func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "Recreate" }, []string{"FieldValueForbidden spec.strategy.rollingUpdate"}},
		"bad strategy": {func(d *appsv1.Deployment) { d.Spec.Strategy.Type = "Random" }, []string{"FieldValueNotSupported spec.strategy.type"}},
		"no progress": {func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate.MaxSurge, d.Spec.Strategy.RollingUpdate.MaxUnavailable = &zero, &zero
		}, []string{"FieldValueInvalid spec.strategy.rollingUpdate.maxUnavailable"}},
		"too many": {func(d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate.MaxUnavailable = &much },
			[]string{"FieldValueInvalid spec.strategy.rollingUpdate.maxUnavailable"}},
		"restart": {func(d *appsv1.Deployment) { d.Spec.Template.Spec.RestartPolicy = "Never" }, []string{"FieldValueNotSupported spec.template.spec.restartPolicy"}},
	} {
		t.Run(name, func(t *testing.T) { check(t, deployments().Validate(deployment(test.change)), test.want...) })
	}
}

func TestSelectorIsImmutable(t *testing.T) {
	old := deployment(func(*appsv1.Deployment) {})
	d := deployment(func(d *appsv1.Deployment) {
		d.Spec.Selector.MatchLabels = map[string]string{"tier": "front"}
		d.Spec.Template.Labels["tier"] = "front"
	})
	errs := deployments().ValidateUpdate(d, old)
	check(t, errs, "FieldValueInvalid spec.selector")
	if !strings.HasSuffix(errs[0].Error(), "field is immutable") {
		t.Error(errs[0])
	}
}

func TestStatefulSetUpdate(t *testing.T) {
	old := statefulSet(func(*appsv1.StatefulSet) {})
	for name, test := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   []string
	}{
		"replicas": {func(s *appsv1.StatefulSet) { n := int32(5); s.Spec.Replicas = &n }, nil},
		"ordinals": {func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 3} }, nil},
		"service":  {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "other" }, []string{"FieldValueForbidden spec"}},
		"below 0":  {func(s *appsv1.StatefulSet) { s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: -1} }, []string{"FieldValueInvalid spec.ordinals.start"}},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, statefulSets().ValidateUpdate(statefulSet(test.change), old), test.want...)
		})
	}
}

func TestDaemonSetStrategy(t *testing.T) {
	one, zero := intstr.FromInt32(1), intstr.FromInt32(0)
	set := func(unavailable, surge intstr.IntOrString) *appsv1.DaemonSet {
		return daemonSet(func(ds *appsv1.DaemonSet) {
			ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable, MaxSurge: &surge}
		})
	}
	check(t, daemonSets().Validate(set(zero, one)))
	check(t, daemonSets().Validate(set(one, one)), "FieldValueInvalid spec.updateStrategy.rollingUpdate.maxSurge")
	check(t, daemonSets().Validate(set(zero, zero)), "FieldValueRequired spec.updateStrategy.rollingUpdate.maxUnavailable")
}

func TestTemplateGeneration(t *testing.T) {
	old := daemonSet(func(*appsv1.DaemonSet) {})
	daemonSets().PrepareCreate(old)
	ds := old.DeepCopy()
	ds.Spec.Template.Spec.Containers[0].Image = "image:2"
	daemonSets().PrepareUpdate(ds, old)
	if a, b := old.Annotations[appsv1.DeprecatedTemplateGeneration], ds.Annotations[appsv1.DeprecatedTemplateGeneration]; a != "1" || b != "2" {
		t.Errorf("generations %q, then %q", a, b)
	}
}

func TestCells(t *testing.T) {
	d := deployment(func(d *appsv1.Deployment) {
		d.Status = appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 3, AvailableReplicas: 1}
		d.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
	})
	want := []any{"web", "2/1", int64(3), int64(1), "5m", "c", "image:1", "app=web"}
	if diff := cmp.Diff(want, deployments().Cells(d, time.Unix(1300, 0))); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestScale(t *testing.T) {
	d := deployment(func(d *appsv1.Deployment) { d.Status.Replicas = 4 })
	scale, _ := deployments().Subresource("scale")
	scale.Scale.Set(d, 6)
	if spec, status, text := scale.Scale.Get(d); spec != 6 || status != 4 || text != "app=web" {
		t.Errorf("scale is %d, %d, %q", spec, status, text)
	}
}
