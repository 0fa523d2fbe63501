package eviction

import (
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/api/builtin"
	"proa/apiserver/request"
	"proa/client/clientfake"
)

func pod(name string, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func budget(name string, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 2, ObservedGeneration: 1},
	}
	b.Generation = 1
	for _, f := range change {
		f(b)
	}
	return b
}

func evict(t *testing.T, c *clientfake.Client, name string, dryRun bool) error {
	t.Helper()
	_, err := Posts(c)["pods/eviction"](t.Context(), request.Post{
		Client: c, Namespace: "ns", Name: name, DryRun: dryRun, Body: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}},
	})
	return err
}

func exists(t *testing.T, c *clientfake.Client, name string) bool {
	t.Helper()
	obj, err := c.Get(t.Context(), c.Table().Lookup("", "pods"), "ns", name)
	return err == nil && obj.GetDeletionTimestamp() == nil
}

func TestEvict(t *testing.T) {
	always := policyv1.AlwaysAllow
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		budgets []api.Object
		dryRun  bool
		code    int32
		gone    bool
	}{
		{"no budget", pod("p", corev1.PodRunning, corev1.ConditionTrue), nil, false, 0, true},
		{"allowed", pod("p", corev1.PodRunning, corev1.ConditionTrue), []api.Object{budget("b", 1)}, false, 0, true},
		{"dry run", pod("p", corev1.PodRunning, corev1.ConditionTrue), []api.Object{budget("b", 1)}, true, 0, false},
		{"exhausted", pod("p", corev1.PodRunning, corev1.ConditionTrue), []api.Object{budget("b", 0)}, false, 429, false},
		{"two budgets", pod("p", corev1.PodRunning, corev1.ConditionTrue), []api.Object{budget("a", 1), budget("b", 1)}, false, 500, false},
		{"stale budget", pod("p", corev1.PodRunning, corev1.ConditionTrue), []api.Object{budget("b", 1, func(b *policyv1.PodDisruptionBudget) { b.Status.ObservedGeneration = 0 })}, false, 429, false},
		{"finished", pod("p", corev1.PodSucceeded, corev1.ConditionFalse), []api.Object{budget("b", 0)}, false, 0, true},
		{"pending", pod("p", corev1.PodPending, corev1.ConditionFalse), []api.Object{budget("b", 0)}, false, 0, true},
		{"unhealthy, disrupted", pod("p", corev1.PodRunning, corev1.ConditionFalse), []api.Object{budget("b", 0)}, false, 429, false},
		{"unhealthy, enough healthy", pod("p", corev1.PodRunning, corev1.ConditionFalse),
			[]api.Object{budget("b", 0, func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 2 })}, false, 0, true},
		{"unhealthy, always allowed", pod("p", corev1.PodRunning, corev1.ConditionFalse),
			[]api.Object{budget("b", 0, func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &always })}, false, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clientfake.New(builtin.Table(), append(tc.budgets, tc.pod)...)
			err := evict(t, c, "p", tc.dryRun)
			var code int32
			if status, ok := err.(apierrors.APIStatus); ok {
				code = status.Status().Code
			}
			if code != tc.code || (err != nil) != (tc.code != 0) {
				t.Errorf("error = %v (%d), want code %d", err, code, tc.code)
			}
			if got := !exists(t, c, "p"); got != tc.gone {
				t.Errorf("gone = %v, want %v", got, tc.gone)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	c := clientfake.New(builtin.Table(), pod("p", corev1.PodRunning, corev1.ConditionTrue), budget("b", 0))
	err := evict(t, c, "p", false)
	if err == nil || err.Error() != "Cannot evict pod as it would violate the pod's disruption budget." {
		t.Errorf("error = %v", err)
	}
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if want := "The disruption budget b needs 2 healthy pods and has 1 currently"; !ok || cause.Message != want {
		t.Errorf("cause = %+v, want %s", cause, want)
	}
}

func TestConcurrentEvictions(t *testing.T) {
	objects := []api.Object{budget("b", 3)}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		objects = append(objects, pod(name, corev1.PodRunning, corev1.ConditionTrue))
	}
	c := clientfake.New(builtin.Table(), objects...)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() {
			if err := evict(t, c, name, false); err != nil && !apierrors.IsTooManyRequests(err) {
				t.Errorf("evict %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	left := 0
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if exists(t, c, name) {
			left++
		}
	}
	obj, err := c.Get(t.Context(), c.Table().Lookup("policy", "poddisruptionbudgets"), "ns", "b")
	if err != nil {
		t.Fatal(err)
	}
	status := obj.(*policyv1.PodDisruptionBudget).Status
	if left != 3 || status.DisruptionsAllowed != 0 || len(status.DisruptedPods) != 3 {
		t.Errorf("%d pods are left, %d disruptions allowed, %d marked; want 3, 0, 3", left, status.DisruptionsAllowed, len(status.DisruptedPods))
	}
}

func TestConflictIsChargedOnce(t *testing.T) {
	c := clientfake.New(builtin.Table(), pod("p", corev1.PodRunning, corev1.ConditionTrue), budget("b", 2))
	failures := 2
	c.FailWith(func(call clientfake.Call) error {
		if call.Verb == "update" && call.Resource.Plural == "pods" && failures > 0 {
			failures--
			return apierrors.NewConflict(call.Resource.GroupResource(), "p", nil)
		}
		return nil
	})
	if err := evict(t, c, "p", false); err != nil {
		t.Fatal(err)
	}
	obj, err := c.Get(t.Context(), c.Table().Lookup("policy", "poddisruptionbudgets"), "ns", "b")
	if err != nil {
		t.Fatal(err)
	}
	if got := obj.(*policyv1.PodDisruptionBudget).Status.DisruptionsAllowed; got != 1 {
		t.Errorf("disruptions allowed = %d, want 1", got)
	}
}
