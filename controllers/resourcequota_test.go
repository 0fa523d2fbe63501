package controllers

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

func quotaOf(name string, counted ...corev1.ResourceName) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for _, c := range counted {
		q.Spec.Hard[c] = resource.MustParse("5")
	}
	return q
}

func (c *cluster) used(quota string, name corev1.ResourceName) string {
	c.t.Helper()
	q, err := client.For[*corev1.ResourceQuota](c).Get(context.Background(), "ns", quota)
	if err != nil {
		c.t.Fatal(err)
	}
	used, ok := q.Status.Used[name]
	if !ok {
		return "unknown"
	}
	return used.String()
}

func TestResourceQuotaCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "resourcequota-controller")
		c.settle()
		check := func(when, quota string, name corev1.ResourceName, want string) {
			t.Helper()
			c.settle()
			if got := c.used(quota, name); got != want {
				t.Errorf("%s: %s uses %s %s, want %s", when, quota, got, name, want)
			}
		}
		create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "ns"}})
		create(c, quotaOf("first", "resourcequotas", "configmaps", "count/replicasets.apps", "secrets"))
		check("a new quota counts itself", "first", "resourcequotas", "1")
		check("a new quota counts what is there", "first", "configmaps", "1")
		check("a new quota counts what is not there", "first", "secrets", "0")

		create(c, quotaOf("second", "resourcequotas"))
		check("a second quota counts both", "second", "resourcequotas", "2")
		if err := client.For[*corev1.ResourceQuota](c).Delete(context.Background(), "ns", "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		check("a quota that went", "second", "resourcequotas", "1")
	})
}
