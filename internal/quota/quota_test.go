package quota

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func text(l corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range l {
		out[string(name)] = q.String()
	}
	return out
}

func pod(requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits},
	}}}}
}

func TestUsage(t *testing.T) {
	done := pod(list("cpu", "1"), nil)
	done.Status.Phase = corev1.PodSucceeded
	class, no := "fast", false
	for _, tc := range []struct {
		name string
		gr   schema.GroupResource
		obj  runtime.Object
		want map[string]string
	}{
		{"pod", schema.GroupResource{Resource: "pods"}, pod(list("cpu", "1", "example.com/gpu", "2"), list("cpu", "2", "memory", "1Gi")), map[string]string{
			"count/pods": "1", "pods": "1", "cpu": "1", "requests.cpu": "1", "requests.example.com/gpu": "2", "limits.cpu": "2", "limits.memory": "1Gi"}},
		{"finished pod", schema.GroupResource{Resource: "pods"}, done, map[string]string{"count/pods": "1"}},
		{"claim", schema.GroupResource{Resource: "persistentvolumeclaims"}, &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: list("storage", "1Gi")}}}, map[string]string{
			"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1", "requests.storage": "1Gi",
			"fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "fast.storageclass.storage.k8s.io/requests.storage": "1Gi"}},
		{"load balancer", schema.GroupResource{Resource: "services"}, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{}, {}}}}, map[string]string{
			"count/services": "1", "services": "1", "services.loadbalancers": "1", "services.nodeports": "2"}},
		{"load balancer without node ports", schema.GroupResource{Resource: "services"}, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: &no, Ports: []corev1.ServicePort{{}, {NodePort: 3}}}}, map[string]string{
			"count/services": "1", "services": "1", "services.loadbalancers": "1", "services.nodeports": "1"}},
		{"other group", schema.GroupResource{Group: "apps", Resource: "deployments"}, nil, map[string]string{"count/deployments.apps": "1"}},
		{"secret", schema.GroupResource{Resource: "secrets"}, &corev1.Secret{}, map[string]string{"count/secrets": "1", "secrets": "1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, text(Usage(tc.gr, tc.obj, time.Now()))); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	seconds := int64(5)
	best, burst := pod(nil, nil), pod(list("cpu", "1"), nil)
	limited := pod(nil, nil)
	limited.Spec.ActiveDeadlineSeconds = &seconds
	urgent := pod(nil, nil)
	urgent.Spec.PriorityClassName = "high"
	scoped := func(s ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "1"), Scopes: s}}
	}
	class := func(op corev1.ScopeSelectorOperator, values ...string) *corev1.ResourceQuota {
		q := scoped()
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: values}}}
		return q
	}
	for _, tc := range []struct {
		name  string
		quota *corev1.ResourceQuota
		pod   *corev1.Pod
		want  bool
	}{
		{"plain", scoped(), best, true},
		{"best effort", scoped(corev1.ResourceQuotaScopeBestEffort), best, true},
		{"burstable is not best effort", scoped(corev1.ResourceQuotaScopeBestEffort), burst, false},
		{"not best effort", scoped(corev1.ResourceQuotaScopeNotBestEffort), burst, true},
		{"terminating", scoped(corev1.ResourceQuotaScopeTerminating), limited, true},
		{"not terminating", scoped(corev1.ResourceQuotaScopeNotTerminating), limited, false},
		{"both", scoped(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotBestEffort), limited, false},
		{"class in", class(corev1.ScopeSelectorOpIn, "high"), urgent, true},
		{"class not in", class(corev1.ScopeSelectorOpNotIn, "high"), urgent, false},
		{"class exists", class(corev1.ScopeSelectorOpExists), best, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Matches(tc.quota, schema.GroupResource{Resource: "pods"}, tc.pod); got != tc.want {
				t.Errorf("matches = %v, want %v", got, tc.want)
			}
		})
	}
	if Matches(scoped(corev1.ResourceQuotaScopeBestEffort), schema.GroupResource{Resource: "secrets"}, &corev1.Secret{}) {
		t.Error("a secret is in a scope of pods")
	}
}
