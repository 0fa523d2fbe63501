package autoscaling

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa/api"
)

func at[T any](v T) *T { return &v }

func autoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	hpa.Name = "web"
	hpa.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"},
		MaxReplicas:    10,
		Behavior:       &autoscalingv2.HorizontalPodAutoscalerBehavior{},
	}
	horizontalPodAutoscalers().Default(hpa)
	return hpa
}

func TestDefaults(t *testing.T) {
	hpa := autoscaler()
	if *hpa.Spec.MinReplicas != 1 || *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization != 80 {
		t.Errorf("%+v", hpa.Spec)
	}
	if n := len(hpa.Spec.Behavior.ScaleUp.Policies); n != 2 || *hpa.Spec.Behavior.ScaleUp.StabilizationWindowSeconds != 0 {
		t.Errorf("scale up: %+v", hpa.Spec.Behavior.ScaleUp)
	}
	if errs := horizontalPodAutoscalers().Validate(hpa); len(errs) > 0 {
		t.Error(errs)
	}
}

// Version v1 carries what it has no fields for in annotations, and loses nothing.
func TestVersion1(t *testing.T) {
	hpa := autoscaler()
	hpa.Annotations = map[string]string{"kept": "yes"}
	q := resource.MustParse("100m")
	_ = q.String()
	hpa.Spec.Metrics = append(hpa.Spec.Metrics, autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: autoscalingv2.MetricTarget{Type: "AverageValue", AverageValue: &q}}})
	hpa.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: "AbleToScale", Status: "True", Reason: "R"}}
	hpa.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: "Resource", Resource: &autoscalingv2.ResourceMetricStatus{
		Name: "cpu", Current: autoscalingv2.MetricValueStatus{AverageUtilization: at[int32](50), AverageValue: &q}}}}
	old, err := v1FromStorage(hpa.DeepCopyObject().(api.Object))
	if err != nil {
		t.Fatal(err)
	}
	v1 := old.(*autoscalingv1.HorizontalPodAutoscaler)
	if *v1.Spec.TargetCPUUtilizationPercentage != 80 || *v1.Status.CurrentCPUUtilizationPercentage != 50 || len(v1.Annotations) != 5 {
		t.Errorf("v1: %+v", v1)
	}
	back, err := v1ToStorage(v1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Object(hpa), back); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func TestTargets(t *testing.T) {
	q, half := resource.MustParse("100m"), resource.MustParse("50m")
	cpu := autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
		Target: autoscalingv2.MetricTarget{AverageUtilization: at[int32](80)}}}
	external := autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Target: autoscalingv2.MetricTarget{AverageValue: &q}}}
	pods := autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Target: autoscalingv2.MetricTarget{AverageValue: &q}}}
	podsNow := autoscalingv2.MetricStatus{Pods: &autoscalingv2.PodsMetricStatus{Current: autoscalingv2.MetricValueStatus{AverageValue: &half}}}
	for want, got := range map[string]string{
		"<none>":               targetsCell(nil, nil),
		"cpu: <unknown>/80%":   targetsCell([]autoscalingv2.MetricSpec{cpu}, nil),
		"<unknown>/100m (avg)": targetsCell([]autoscalingv2.MetricSpec{external}, nil),
		"50m/100m, cpu: <unknown>/80% + 1 more...": targetsCell([]autoscalingv2.MetricSpec{pods, cpu, cpu}, []autoscalingv2.MetricStatus{podsNow}),
	} {
		if want != got {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
