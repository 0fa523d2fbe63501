package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa/client"
)

func TestDisruption(t *testing.T) {
	minimum := func(s string) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.Parse(s))}
	}
	maximum := func(s string) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.Parse(s))}
	}
	// A ReplicaSet wants 10 pods; 9 are there, of which 8 are ready.
	for _, test := range []struct {
		name    string
		spec    policyv1.PodDisruptionBudgetSpec
		disrupt bool   // one of the ready pods is being evicted
		want    string // expected desired healthy allowed reason
	}{
		{"minimum", minimum("7"), false, "9 7 8 1 SufficientPods"},
		{"minimum in percent of replicas", minimum("61%"), false, "10 7 8 1 SufficientPods"},
		{"maximum", maximum("1"), false, "10 9 8 0 InsufficientPods"},
		{"maximum in percent, rounded up", maximum("31%"), false, "10 6 8 2 SufficientPods"},
		{"maximum above replicas", maximum("20"), false, "10 0 8 8 SufficientPods"},
		{"an eviction under way", minimum("7"), true, "9 7 7 0 InsufficientPods"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "disruption-controller")
				c.holdIf(func(*corev1.Pod) bool { return true })
				rs := c.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](10)}})
				for i := range 9 {
					state := "ready"
					if i == 8 {
						state = ""
					}
					p := servicePod(fmt.Sprintf("p%d", i), "10.1.0.1", 80, state)
					p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
					c.Put(p)
				}
				b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", Generation: 3}, Spec: test.spec}
				b.Spec.Selector = selectApp("web")
				if test.disrupt {
					b.Status.DisruptedPods = map[string]metav1.Time{"p0": metav1.Now(), "absent": metav1.Now()}
				}
				c.Put(b)
				c.settle()
				status := func() string {
					s := read[*policyv1.PodDisruptionBudget](c, "b").Status
					cond := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
					if s.ObservedGeneration != 3 || cond == nil {
						return fmt.Sprintf("%+v", s)
					}
					return fmt.Sprintf("%d %d %d %d %s", s.ExpectedPods, s.DesiredHealthy, s.CurrentHealthy, s.DisruptionsAllowed, cond.Reason)
				}
				if got := status(); got != test.want {
					t.Errorf("status %q, want %q", got, test.want)
				}
				if test.disrupt {
					if d := read[*policyv1.PodDisruptionBudget](c, "b").Status.DisruptedPods; len(d) != 1 {
						t.Errorf("disrupted pods %v, want the one that exists", d)
					}
					time.Sleep(2 * time.Minute)
					if got, want := status(), "9 7 8 1 SufficientPods"; got != want {
						t.Errorf("status %q once the eviction lapsed, want %q", got, want)
					}
				}
			})
		})
	}
}

func TestDisruptionWithoutScale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "disruption-controller")
		c.holdIf(func(*corev1.Pod) bool { return true })
		job := c.Put(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "ns"}})
		p := servicePod("p", "10.1.0.1", 80, "ready")
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
		c.Put(p)
		c.Put(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns"}, Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: selectApp("web"), MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		}})
		c.settle()
		cond := meta.FindStatusCondition(read[*policyv1.PodDisruptionBudget](c, "b").Status.Conditions, policyv1.DisruptionAllowedCondition)
		if cond == nil || cond.Reason != policyv1.SyncFailedReason || cond.Message != "jobs.batch does not implement the scale subresource" {
			t.Errorf("condition %+v", cond)
		}
	})
}

func TestResourceQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "resourcequota-controller")
		c.holdIf(func(*corev1.Pod) bool { return true })
		hard := corev1.ResourceList{"pods": resource.MustParse("9"), "requests.cpu": resource.MustParse("4"), "configmaps": resource.MustParse("5"), "count/secrets": resource.MustParse("5")}
		used := func() string {
			u := read[*corev1.ResourceQuota](c, "q").Status.Used
			show := func(n corev1.ResourceName) string { v := u[n]; return v.String() }
			return strings.Join([]string{show("pods"), show("requests.cpu"), show("configmaps"), show("count/secrets")}, " ")
		}
		for _, name := range []string{"a", "b"} {
			p := servicePod(name, "10.1.0.1", 80, "ready")
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m")}
			c.Put(p)
		}
		m := c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "ns"}})
		c.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}})
		c.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "elsewhere"}})
		c.Put(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q", Namespace: "ns"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}})
		c.settle()
		if got, want := used(), "2 1 1 1"; got != want {
			t.Errorf("used %q, want %q", got, want)
		}
		c.setPod("a", corev1.PodSucceeded, 0)
		c.Remove(m)
		c.settle()
		if got, want := used(), "1 500m 0 1"; got != want {
			t.Errorf("used %q after a pod ended and a map went, want %q", got, want)
		}

		// Admission charges for an object before it is there; a recount meanwhile must not take the charge back for good.
		q := read[*corev1.ResourceQuota](c, "q").DeepCopy()
		q.Status.Used["configmaps"] = resource.MustParse("1")
		c.Put(q)
		c.settle()
		if got, want := used(), "1 500m 1 1"; got != want {
			t.Errorf("used %q right after a charge, want %q", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := used(), "1 500m 0 1"; got != want {
			t.Errorf("used %q after a charge for nothing, want %q", got, want)
		}
		c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "ns"}})
		time.Sleep(time.Minute)
		if got, want := used(), "1 500m 1 1"; got != want {
			t.Errorf("used %q after an object whose charge was taken back, want %q", got, want)
		}
		q = read[*corev1.ResourceQuota](c, "q").DeepCopy()
		delete(q.Spec.Hard, "pods")
		c.Put(q)
		c.settle()
		if s := read[*corev1.ResourceQuota](c, "q").Status; len(s.Used) != 3 || len(s.Hard) != 3 {
			t.Errorf("status %+v after a resource is no longer limited", s)
		}
	})
}

func TestTTLAfterFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "ttl-after-finished-controller")
		for name, ttl := range map[string]*int32{"soon": ptr.To[int32](60), "now": ptr.To[int32](0), "kept": nil, "running": ptr.To[int32](0)} {
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Finalizers: []string{"example.com/hold"}}, Spec: batchv1.JobSpec{TTLSecondsAfterFinished: ttl}}
			if name != "running" {
				j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			}
			c.Put(j)
		}
		gone := func() string {
			var out []string
			list, _ := client.For[*batchv1.Job](c).List(context.Background(), "ns", metav1.ListOptions{})
			for _, j := range list {
				if j.DeletionTimestamp != nil && strings.Contains(strings.Join(j.Finalizers, " "), metav1.FinalizerDeleteDependents) {
					out = append(out, j.Name)
				}
			}
			return strings.Join(out, " ")
		}
		time.Sleep(58 * time.Second)
		if got := gone(); got != "now" {
			t.Errorf("deleted %q, want the job without a delay", got)
		}
		time.Sleep(3 * time.Second)
		if got := gone(); got != "now soon" {
			t.Errorf("deleted %q, want both jobs with a time to live", got)
		}
	})
}

func TestClusterRoleAggregation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "clusterrole-aggregation-controller")
		part := func(name, verb string) {
			c.Put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}}, Rules: []rbacv1.PolicyRule{{Verbs: []string{verb}, APIGroups: []string{""}, Resources: []string{"pods"}}}})
			c.settle()
		}
		verbs := func() (out string) {
			r, err := client.For[*rbacv1.ClusterRole](c).Get(t.Context(), "", "whole")
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range r.Rules {
				out += strings.Join(rule.Verbs, ",") + " "
			}
			return strings.TrimSpace(out)
		}
		c.Put(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "whole"}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{*selectApp("x"), *selectApp("y")}}})
		part("b", "list")
		part("a", "get")
		part("c", "get")
		if got := verbs(); got != "get list" {
			t.Errorf("rules for %q, want those of the parts once, in the order of their names", got)
		}
		part("b", "watch")
		if got := verbs(); got != "get watch" {
			t.Errorf("rules for %q after a part changed", got)
		}
	})
}
