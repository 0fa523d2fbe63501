package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
)

func TestEventConversion(t *testing.T) {
	at := metav1.NewMicroTime(time.Unix(100, 0))
	in := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "n"}, EventTime: at, Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: at},
		ReportingController: "c", ReportingInstance: "i", Action: "a", Reason: "r", Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p"},
		Related: &corev1.ObjectReference{Name: "q"}, Note: "note", Type: "Normal", DeprecatedCount: 3,
		DeprecatedSource: corev1.EventSource{Component: "x"}, DeprecatedFirstTimestamp: metav1.Unix(1, 0), DeprecatedLastTimestamp: metav1.Unix(2, 0),
	}
	stored, err := eventToCore(in.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if e := stored.(*corev1.Event); e.Message != "note" || e.InvolvedObject.Name != "p" || e.Count != 3 {
		t.Errorf("stored: %+v", e)
	}
	out, err := eventFromCore(stored)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(api.Object(in), out); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

func TestEventCells(t *testing.T) {
	now := time.Unix(1000, 0)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, Type: "Warning", Reason: "Failed", Message: " text\n",
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.containers{a}"},
		Source:         corev1.EventSource{Component: "kubelet", Host: "n"}, FirstTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		LastTimestamp: metav1.NewTime(now.Add(-time.Second)), Count: 4,
	}
	want := []any{"1s", "Warning", "Failed", "pod/p", "spec.containers{a}", "kubelet, n", "text", "60s", int64(4), "e"}
	if diff := cmp.Diff(want, eventCells(e, now)); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestSecret(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"a": []byte("old")}, StringData: map[string]string{"a": "new"}}
	defaultSecret(s)
	if string(s.Data["a"]) != "new" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("defaulted: %+v", s)
	}
	for _, tc := range []struct {
		name   string
		secret corev1.Secret
		want   []string
	}{
		{"key", corev1.Secret{Data: map[string][]byte{"a/b": nil}}, []string{"Invalid data[a/b]"}},
		{"size", corev1.Secret{Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}}, []string{"TooLong data"}},
		{"tls", corev1.Secret{Type: corev1.SecretTypeTLS}, []string{"Required data[tls.crt]", "Required data[tls.key]"}},
		{"docker", corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{".dockerconfigjson": []byte("x")}},
			[]string{"Invalid data[.dockerconfigjson]"}},
		{"account", corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}, []string{"Required metadata.annotations[kubernetes.io/service-account.name]"}},
	} {
		if diff := cmp.Diff(tc.want, short(validateSecret(&tc.secret))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	old := &corev1.Secret{Type: "a", Immutable: new(true), Data: map[string][]byte{"a": nil}}
	want := []string{"Forbidden data", "Forbidden immutable", "Invalid type"}
	if diff := cmp.Diff(want, short(validateSecretUpdate(&corev1.Secret{Type: "b"}, old))); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
}

func TestClaimUpdate(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeName: "v", StorageClassName: new("fast"), Resources: corev1.VolumeResourceRequirements{Requests: resources("storage", "2Gi")}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: resources("storage", "2Gi")},
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   []string
	}{
		{"nothing", func(*corev1.PersistentVolumeClaim) {}, []string{}},
		{"grown", func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = resources("storage", "3Gi") }, []string{}},
		{"shrunk", func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = resources("storage", "1Gi") },
			[]string{"Forbidden spec.resources.requests.storage"}},
		{"class", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("slow") }, []string{"Forbidden spec"}},
		{"attributes", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }, []string{}},
	} {
		pvc := old.DeepCopy()
		defaultClaim(pvc)
		before := pvc.DeepCopy()
		tc.change(pvc)
		if diff := cmp.Diff(tc.want, short(validateClaimUpdate(pvc, before))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestPersistentVolume(t *testing.T) {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
		Capacity: resources("storage", "1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
	}}
	defaultPersistentVolume(pv)
	preparePersistentVolume(pv)
	if errs := validatePersistentVolume(pv); len(errs) != 0 {
		t.Errorf("valid volume: %v", errs)
	}
	want := []any{"", "1Gi", "RWO,ROX", "Retain", "Pending", "", "", "<unset>", "", "<unknown>", "Filesystem"}
	if diff := cmp.Diff(want, persistentVolumeCells(pv, time.Now())); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	class := pv.DeepCopy()
	class.Spec.VolumeAttributesClassName = new("")
	if diff := cmp.Diff([]string{"Required spec.csi", "Required spec.volumeAttributesClassName"}, short(validatePersistentVolume(class))); diff != "" {
		t.Errorf("class (-want +got):\n%s", diff)
	}
	first := pv.Status.LastPhaseTransitionTime
	same, changed := pv.DeepCopy(), pv.DeepCopy()
	same.Status.LastPhaseTransitionTime = nil
	preparePersistentVolumeStatus(same, pv)
	if !same.Status.LastPhaseTransitionTime.Equal(first) {
		t.Error("the transition time is lost without a transition")
	}
	own := metav1.Unix(5, 0)
	changed.Status.Phase, changed.Status.LastPhaseTransitionTime = corev1.VolumeBound, &own
	preparePersistentVolumeStatus(changed, pv)
	if !changed.Status.LastPhaseTransitionTime.Equal(&own) {
		t.Error("the client's transition time is overwritten")
	}
}

func TestNode(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}},
		Spec:       corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.0.0.0/24", ProviderID: "x://1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "1.2.3.4"}}, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}},
	}
	defaultNode(node)
	want := []any{"n", "Ready,SchedulingDisabled", "a,b", "<unknown>", "v1", "1.2.3.4", none, "<unknown>", "<unknown>", "<unknown>"}
	if diff := cmp.Diff(want, nodeCells(node, time.Now())); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	other := node.DeepCopy()
	other.Spec.ProviderID, other.Spec.PodCIDRs = "y", []string{"10.0.1.0/24"}
	other.Spec.Taints = []corev1.Taint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoSchedule"}, {Key: "b"}}
	bad := []string{"Duplicate spec.taints[1]", "Forbidden spec.podCIDRs", "Forbidden spec.providerID", "Required spec.taints[2].effect"}
	if diff := cmp.Diff(bad, short(validateNodeUpdate(other, node))); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
}

func TestNamespace(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	prepareNamespace(ns)
	if ns.Labels["kubernetes.io/metadata.name"] != "n" || ns.Spec.Finalizers[0] != "kubernetes" || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("prepared: %+v", ns)
	}
	without := ns.DeepCopy()
	without.Spec.Finalizers = nil
	prepareNamespaceUpdate(without, ns)
	if len(without.Spec.Finalizers) != 1 {
		t.Error("an update of the namespace takes the finalizer away")
	}
}

func TestLimitRange(t *testing.T) {
	lr := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
		Max: resources("cpu", "2"), Min: resources("cpu", "1", "memory", "1Mi")}}}}
	defaultLimitRange(lr)
	got := lr.Spec.Limits[0]
	if diff := cmp.Diff(resources("cpu", "2"), got.Default); diff != "" {
		t.Errorf("default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(resources("cpu", "2", "memory", "1Mi"), got.DefaultRequest); diff != "" {
		t.Errorf("default request (-want +got):\n%s", diff)
	}
	lr.Spec.Limits[0].Min = resources("cpu", "3")
	if got := short(validateLimitRange(lr)); len(got) != 3 || got[0] != "Invalid spec.limits[0].min[cpu]" {
		t.Errorf("errors: %v", got)
	}
}

func TestResourceQuota(t *testing.T) {
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: resources("pods", "1500m", "count/deployments.apps", "1", "bogus", "1"),
		Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort}}}
	want := []string{"Invalid spec.hard[bogus]", "Invalid spec.hard[pods]", "Invalid spec.scopes"}
	if diff := cmp.Diff(want, short(validateResourceQuota(q))); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: resources("limits.cpu", "2", "pods", "3"), Used: resources("pods", "1")}
	if diff := cmp.Diff([]any{"pods: 1/3", "limits.cpu: 0/2"}, resourceQuotaCells(q, time.Now())[2:]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestEndpointsCells(t *testing.T) {
	e := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "1.1.1.1"}, {IP: "1.1.1.2"}}, Ports: []corev1.EndpointPort{{Port: 80}, {Port: 81}}}}}
	if got := someEndpoints(e); got != "1.1.1.1:80,1.1.1.2:80,1.1.1.1:81 + 1 more..." {
		t.Errorf("got %q", got)
	}
	if got := someEndpoints(&corev1.Endpoints{}); got != none {
		t.Errorf("got %q", got)
	}
}

func TestBind(t *testing.T) {
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}, Target: corev1.ObjectReference{Name: "n"}}
	pod := goodPod()
	now := metav1.Now()
	if err := Bind(pod, b, now); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "n" || pod.Annotations["a"] != "b" || !conditionTrue(pod, corev1.PodScheduled) {
		t.Errorf("bound: %+v", pod)
	}
	if err := Bind(pod, b, now); err == nil {
		t.Error("a pod is bound twice")
	}
}
