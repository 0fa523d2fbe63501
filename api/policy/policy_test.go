package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestPodDisruptionBudget(t *testing.T) {
	one, much, unknown := intstr.FromInt32(1), intstr.FromString("120%"), policyv1.UnhealthyPodEvictionPolicyType("Sometimes")
	for name, test := range map[string]struct {
		spec policyv1.PodDisruptionBudgetSpec
		want []string
	}{
		"fine":    {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, nil},
		"both":    {policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, MaxUnavailable: &one}, []string{"spec"}},
		"percent": {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &much}, []string{"spec.maxUnavailable"}},
		"policy":  {policyv1.PodDisruptionBudgetSpec{UnhealthyPodEvictionPolicy: &unknown}, []string{"spec.unhealthyPodEvictionPolicy"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range podDisruptionBudgets().Validate(&policyv1.PodDisruptionBudget{Spec: test.spec}) {
				got = append(got, err.Field)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "pdb", CreationTimestamp: metav1.NewTime(time.Unix(0, 0))},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 5}}
	if diff := cmp.Diff([]any{"pdb", "1", "N/A", int64(5), "5m"}, podDisruptionBudgets().Cells(pdb, time.Unix(300, 0))); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}
