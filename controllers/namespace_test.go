package controllers

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/client/clientfake"
)

func terminating() *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "ns", DeletionTimestamp: ptr.To(metav1.Now()), Finalizers: []string{"example.com/hold"}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

// finalized reports whether the namespace has been let go since the last call.
func (c *cluster) finalized() bool {
	return slices.ContainsFunc(c.Calls(), func(call clientfake.Call) bool {
		return call.Subresource == "finalize" && len(call.Object.(*corev1.Namespace).Spec.Finalizers) == 0
	})
}

func TestNamespaceEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "namespace-controller")
		c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free", Namespace: "ns"}})
		c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Namespace: "ns", Finalizers: []string{"example.com/hold"}}})
		elsewhere := c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "free", Namespace: "elsewhere"}})
		c.Put(terminating())
		c.settle()
		if got := c.maps(); got != "held(deleting)" || c.finalized() {
			t.Errorf("left %q, want what somebody else holds", got)
		}
		for kind, want := range map[corev1.NamespaceConditionType]string{
			corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered All resources successfully discovered",
			corev1.NamespaceDeletionContentFailure:   "False ContentDeleted All content successfully deleted, may be waiting on finalization",
			corev1.NamespaceContentRemaining:         "True SomeResourcesRemain Some resources are remaining: configmaps. has 1 resource instances",
			corev1.NamespaceFinalizersRemaining:      "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
			corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
		} {
			ns, err := client.For[*corev1.Namespace](c).Get(t.Context(), "", "ns")
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
			if i < 0 {
				t.Errorf("no condition %s", kind)
			} else if got := ns.Status.Conditions[i]; string(got.Status)+" "+got.Reason+" "+got.Message != want {
				t.Errorf("%s: %s %s %s, want %s", kind, got.Status, got.Reason, got.Message, want)
			}
		}
		edit(c, "held", func(m *corev1.ConfigMap) { m.Finalizers = nil })
		if got := c.maps(); got != "" || !c.finalized() {
			t.Errorf("left %q; it should be empty and let go", got)
		}
		if _, err := client.For[*corev1.ConfigMap](c).Get(t.Context(), "elsewhere", elsewhere.GetName()); err != nil {
			t.Error(err)
		}
	})
}

func TestNamespaceFurnished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startConfigured(t, Config{RootCA: "pem"}, "serviceaccount-controller", "root-ca-certificate-publisher-controller")
		furnished := func() string {
			var out []string
			if _, err := client.For[*corev1.ServiceAccount](c).Get(t.Context(), "ns", "default"); err == nil {
				out = append(out, "account")
			}
			if m, err := client.For[*corev1.ConfigMap](c).Get(t.Context(), "ns", "kube-root-ca.crt"); err == nil {
				out = append(out, m.Data["ca.crt"])
			}
			return strings.Join(out, " ")
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
		c.Put(ns)
		c.settle()
		if got := furnished(); got != "account pem" {
			t.Errorf("a new namespace has %q", got)
		}
		c.Remove(read[*corev1.ServiceAccount](c, "default"))
		edit(c, "kube-root-ca.crt", func(m *corev1.ConfigMap) { m.Data = map[string]string{"ca.crt": "other"} })
		if got := furnished(); got != "account pem" {
			t.Errorf("%q after somebody meddled", got)
		}
		c.Put(terminating())
		c.settle()
		c.Remove(read[*corev1.ServiceAccount](c, "default"))
		c.Remove(read[*corev1.ConfigMap](c, "kube-root-ca.crt"))
		c.settle()
		if got := furnished(); got != "" {
			t.Errorf("a namespace that ends gets %q", got)
		}
	})
}
