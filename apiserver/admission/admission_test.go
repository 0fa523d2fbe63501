package admission

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
	"proa/api/builtin"
	"proa/apiserver/authz"
	"proa/apiserver/request"
	"proa/client/clientfake"
)

// cluster has the namespace "ns" with its default account.
func cluster(objects ...api.Object) *clientfake.Client {
	return clientfake.New(builtin.Table(), append([]api.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}},
	}, objects...)...)
}

// attributes of a write of obj by an administrator.
func attributes(c *clientfake.Client, op Operation, obj, old api.Object) *Attributes {
	about := obj
	if about == nil {
		about = old
	}
	return &Attributes{
		Operation: op, Resource: c.Table().ForKind(c.Table().KindOf(about).GroupKind()),
		Namespace: about.GetNamespace(), Name: about.GetName(), Object: obj, OldObject: old,
		User: &request.User{Name: "admin", Groups: []string{request.Masters}},
	}
}

// run passes a through a plugin and returns the warnings.
func run(t *testing.T, p Plugin, a *Attributes) ([]string, error) {
	t.Helper()
	var warnings []string
	ctx := request.WithWarnings(t.Context(), func(text string) { warnings = append(warnings, text) })
	if err := p.Admit(ctx, a); err != nil {
		return warnings, err
	}
	return warnings, p.Validate(ctx, a)
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if got := fmt.Sprint(err); got != text {
		t.Errorf("error = %s\nwant    %s", got, text)
	}
}

func newPod(requests, limits corev1.ResourceList) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}},
	}}
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestDefaultChain(t *testing.T) {
	c := cluster(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}})
	chain := Default(c, slog.New(slog.DiscardHandler))
	seen := map[string]bool{}
	for _, p := range chain {
		if seen[p.Name()] {
			t.Errorf("%s is in the chain twice", p.Name())
		}
		seen[p.Name()] = true
	}
	pod := newPod(nil, nil)
	a := attributes(c, Create, pod, nil)
	if err := chain.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := chain.Validate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.ServiceAccountName != "default" || pod.Spec.Priority == nil || len(pod.Spec.Tolerations) != 2 || len(pod.Spec.Volumes) != 1 {
		t.Errorf("pod after admission: %+v", pod.Spec)
	}
	// No plugin minds a delete, which has no object.
	for _, kind := range []string{"configmaps", "pods", "services"} {
		d := &Attributes{Operation: Delete, Resource: c.Table().Lookup("", kind), Namespace: "ns", Name: "x", User: &request.User{Name: "u"}}
		if err := chain.Admit(t.Context(), d); err != nil {
			t.Errorf("delete of %s: %v", kind, err)
		}
		if err := chain.Validate(t.Context(), d); err != nil {
			t.Errorf("delete of %s: %v", kind, err)
		}
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	c := cluster(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
	p := NewNamespaceLifecycle(c)
	cm := func(namespace string) api.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
	}
	_, err := run(t, p, attributes(c, Create, cm("none"), nil))
	wantError(t, err, `namespaces "none" not found`)
	_, err = run(t, p, attributes(c, Create, cm("going"), nil))
	wantError(t, err, `configmaps "x" is forbidden: unable to create new content in namespace going because it is being terminated`)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("causes of %v lack NamespaceTerminating", err)
	}
	if _, err = run(t, p, attributes(c, Update, cm("going"), cm("going"))); err != nil {
		t.Errorf("update in a terminating namespace: %v", err)
	}
	for name, want := range map[string]string{
		"default": `namespaces "default" is forbidden: this namespace may not be deleted`, "ns": "<nil>",
		"kube-system": `namespaces "kube-system" is forbidden: this namespace may not be deleted`,
	} {
		a := attributes(c, Delete, nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		_, err := run(t, p, a)
		wantError(t, err, want)
	}
}

func TestLimitRanger(t *testing.T) {
	limits := func(items ...corev1.LimitRangeItem) api.Object {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: items}}
	}
	c := cluster(limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: list("cpu", "100m", "memory", "1Gi"), Default: list("cpu", "1")}))
	pod := newPod(list("memory", "2Gi"), nil)
	if _, err := run(t, NewLimitRanger(c), attributes(c, Create, pod, nil)); err != nil {
		t.Fatal(err)
	}
	want := corev1.ResourceRequirements{Requests: list("cpu", "100m", "memory", "2Gi"), Limits: list("cpu", "1")}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if got := pod.Annotations[limitRangerAnnotation]; got != "LimitRanger plugin set: cpu request for container c; cpu limit for container c" {
		t.Errorf("annotation = %q", got)
	}
	for _, tc := range []struct {
		name             string
		item             corev1.LimitRangeItem
		requests, limits corev1.ResourceList
		want             string
	}{
		{"min", corev1.LimitRangeItem{Type: "Container", Min: list("cpu", "100m")}, list("cpu", "50m"), nil, "minimum cpu usage per Container is 100m, but request is 50m"},
		{"no request", corev1.LimitRangeItem{Type: "Container", Min: list("cpu", "100m")}, nil, nil, "minimum cpu usage per Container is 100m.  No request is specified"},
		{"max", corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "1")}, nil, list("cpu", "2"), "maximum cpu usage per Container is 1, but limit is 2"},
		{"no limit", corev1.LimitRangeItem{Type: "Pod", Max: list("memory", "1Gi")}, list("memory", "1Mi"), nil, "maximum memory usage per Pod is 1Gi.  No limit is specified"},
		{"ratio", corev1.LimitRangeItem{Type: "Container", MaxLimitRequestRatio: list("cpu", "2")}, list("cpu", "1"), list("cpu", "4"),
			"cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"},
		{"two", corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "1", "memory", "1Gi")}, nil, list("cpu", "2", "memory", "2Gi"),
			"[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 1Gi, but limit is 2Gi]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster(limits(tc.item))
			_, err := run(t, NewLimitRanger(c), attributes(c, Create, newPod(tc.requests, tc.limits), nil))
			wantError(t, err, `pods "p" is forbidden: `+tc.want)
		})
	}
}

func TestServiceAccount(t *testing.T) {
	c := cluster(&corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "puller"}, AutomountServiceAccountToken: new(bool),
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
	})
	p := NewServiceAccount(c)
	pod := newPod(nil, nil)
	if _, err := run(t, p, attributes(c, Create, pod, nil)); err != nil {
		t.Fatal(err)
	}
	v := pod.Spec.Volumes[0]
	if !strings.HasPrefix(v.Name, "kube-api-access-") || len(v.Name) != len("kube-api-access-")+5 || *v.Projected.DefaultMode != 0o644 ||
		*v.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607 {
		t.Errorf("token volume = %+v", v)
	}
	want := []corev1.VolumeMount{{Name: v.Name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	pod = newPod(nil, nil)
	pod.Spec.ServiceAccountName = "puller"
	if _, err := run(t, p, attributes(c, Create, pod, nil)); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Volumes) != 0 || len(pod.Spec.ImagePullSecrets) != 1 {
		t.Errorf("pod of an account without automount: %+v", pod.Spec)
	}
	pod = newPod(nil, nil)
	pod.Spec.ServiceAccountName = "none"
	_, err := run(t, p, attributes(c, Create, pod, nil))
	wantError(t, err, `pods "p" is forbidden: error looking up service account ns/none: serviceaccount "none" not found`)
}

func TestServiceAccountWaitsForDefault(t *testing.T) {
	c := clientfake.New(builtin.Table(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", CreationTimestamp: metav1.Now()}})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		time.Sleep(20 * time.Millisecond)
		c.Put(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}})
	})
	if _, err := run(t, NewServiceAccount(c), attributes(c, Create, newPod(nil, nil), nil)); err != nil {
		t.Errorf("pod in a young namespace: %v", err)
	}
}

func TestPriority(t *testing.T) {
	never := corev1.PreemptNever
	c := cluster(
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 7, GlobalDefault: true},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "polite"}, Value: 9, PreemptionPolicy: &never},
	)
	p := NewPriority(c)
	for _, tc := range []struct {
		class    string
		priority int32
		policy   corev1.PreemptionPolicy
	}{
		{"", 7, corev1.PreemptLowerPriority}, {"polite", 9, never}, {"system-node-critical", 2000001000, corev1.PreemptLowerPriority},
	} {
		pod := newPod(nil, nil)
		pod.Spec.PriorityClassName = tc.class
		if _, err := run(t, p, attributes(c, Create, pod, nil)); err != nil {
			t.Fatal(err)
		}
		if *pod.Spec.Priority != tc.priority || *pod.Spec.PreemptionPolicy != tc.policy {
			t.Errorf("class %q: priority %d, policy %s", tc.class, *pod.Spec.Priority, *pod.Spec.PreemptionPolicy)
		}
	}
	pod := newPod(nil, nil)
	pod.Spec.PriorityClassName = "none"
	_, err := run(t, p, attributes(c, Create, pod, nil))
	wantError(t, err, `pods "p" is forbidden: no PriorityClass with name none was found`)
	pod = newPod(nil, nil)
	pod.Spec.Priority = new(int32(3))
	_, err = run(t, p, attributes(c, Create, pod, nil))
	wantError(t, err, `pods "p" is forbidden: the integer value of priority (3) must not be provided in pod spec; priority admission controller computed 7 from the given PriorityClass name`)
	_, err = run(t, p, attributes(c, Create, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "second"}, GlobalDefault: true}, nil))
	wantError(t, err, `priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass usual is already marked as default. Only one default can exist`)
}

func TestResourceQuota(t *testing.T) {
	newQuota := func(hard corev1.ResourceList) *corev1.ResourceQuota {
		used := corev1.ResourceList{}
		for name := range hard {
			used[name] = resource.MustParse("0")
		}
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
			Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used},
		}
	}
	used := func(c *clientfake.Client, name corev1.ResourceName) string {
		q, err := c.Get(context.Background(), c.Table().Lookup("", "resourcequotas"), "ns", "q")
		if err != nil {
			t.Fatal(err)
		}
		amount := q.(*corev1.ResourceQuota).Status.Used[name]
		return amount.String()
	}

	c := cluster(newQuota(list("pods", "5", "requests.cpu", "1")))
	p := NewResourceQuota(c)
	a := attributes(c, Create, newPod(list("cpu", "600m"), nil), nil)
	a.DryRun = true
	if _, err := run(t, p, a); err != nil || used(c, "pods") != "0" {
		t.Errorf("dry run: %v, used %s", err, used(c, "pods"))
	}
	a.DryRun = false
	if _, err := run(t, p, a); err != nil || used(c, "requests.cpu") != "600m" || used(c, "pods") != "1" {
		t.Errorf("first pod: %v, used %s, %s", err, used(c, "requests.cpu"), used(c, "pods"))
	}
	_, err := run(t, p, a)
	wantError(t, err, `pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1`)
	if used(c, "pods") != "1" {
		t.Errorf("a refused pod was charged: %s", used(c, "pods"))
	}
	_, err = run(t, p, attributes(c, Create, newPod(nil, nil), nil))
	wantError(t, err, `pods "p" is forbidden: failed quota: q: must specify requests.cpu for: c`)

	fresh := newQuota(list("secrets", "1"))
	fresh.Status = corev1.ResourceQuotaStatus{}
	c = cluster(fresh)
	_, err = run(t, NewResourceQuota(c), attributes(c, Create, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}}, nil))
	wantError(t, err, `secrets "s" is forbidden: status unknown for quota: q, resources: secrets`)

	c = cluster(newQuota(list("services.nodeports", "1")))
	plain := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: make([]corev1.ServicePort, 1)}}
	open := plain.DeepCopy()
	open.Spec.Type = corev1.ServiceTypeNodePort
	if _, err := run(t, NewResourceQuota(c), attributes(c, Update, open, plain)); err != nil || used(c, "services.nodeports") != "1" {
		t.Errorf("opened service: %v, used %s", err, used(c, "services.nodeports"))
	}
	if _, err := run(t, NewResourceQuota(c), attributes(c, Update, open, open)); err != nil {
		t.Errorf("update that does not grow: %v", err)
	}

	// Concurrent requests never get more than there is, whoever else changes the status meanwhile.
	c = cluster(newQuota(list("pods", "10")))
	p = NewResourceQuota(c)
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 30 {
		wg.Go(func() {
			if err := p.Validate(t.Context(), attributes(c, Create, newPod(nil, nil), nil)); err == nil {
				mu.Lock()
				admitted++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if admitted != 10 || used(c, "pods") != "10" {
		t.Errorf("admitted %d pods, used %s, want 10", admitted, used(c, "pods"))
	}
}

func TestPodSecurity(t *testing.T) {
	labelled := func(labels map[string]string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: labels}}
	}
	privileged := newPod(nil, nil)
	privileged.Spec.HostNetwork = true
	c := cluster(labelled(map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "restricted"}), privileged)
	p := NewPodSecurity(c, slog.New(slog.DiscardHandler))
	_, err := run(t, p, attributes(c, Create, privileged.DeepCopy(), nil))
	wantError(t, err, `pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	warnings, err := run(t, p, attributes(c, Create, newPod(nil, nil), nil))
	if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], `would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), `) {
		t.Errorf("baseline pod: %v, %q", err, warnings)
	}
	warnings, err = run(t, p, attributes(c, Update, labelled(map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}), labelled(nil)))
	want := []string{`existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"`, "p: host namespaces"}
	if diff := cmp.Diff(want, warnings); err != nil || diff != "" {
		t.Errorf("stricter namespace: %v, warnings (-want +got):\n%s", err, diff)
	}
	_, err = run(t, p, attributes(c, Create, labelled(map[string]string{"pod-security.kubernetes.io/enforce": "strict"}), nil))
	if !apierrors.IsInvalid(err) {
		t.Errorf("unknown level: %v, want invalid", err)
	}
}

func TestNodeRestriction(t *testing.T) {
	mine := newPod(nil, nil)
	mine.UID, mine.Spec.NodeName = "uid", "n1"
	node := func(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	c := cluster(mine)
	p := NewNodeRestriction(c)
	as := func(name string, a *Attributes) error {
		a.User = &request.User{Name: "system:node:" + name, Groups: []string{request.Nodes}}
		_, err := run(t, p, a)
		return err
	}
	sub := func(a *Attributes, name string) *Attributes { a.Subresource = name; return a }

	wantError(t, as("n1", attributes(c, Create, newPod(nil, nil), nil)),
		`pods "p" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`)
	wantError(t, as("n1", sub(attributes(c, Update, mine, mine), "status")), "<nil>")
	wantError(t, as("n2", sub(attributes(c, Update, mine, mine), "status")),
		`pods "p" is forbidden: node "n2" can only update pod status for pods with spec.nodeName set to itself`)
	wantError(t, as("n1", attributes(c, Delete, nil, mine)), "<nil>")
	wantError(t, as("n2", attributes(c, Delete, nil, mine)), `pods "p" is forbidden: node "n2" can only delete pods with spec.nodeName set to itself`)
	wantError(t, as("n1", attributes(c, Create, node(map[string]string{"kubernetes.io/hostname": "n1", "example.com/x": "y"}), nil)), "<nil>")
	wantError(t, as("n2", attributes(c, Create, node(nil), nil)), `nodes "n1" is forbidden: node "n2" is not allowed to modify node "n1"`)
	wantError(t, as("n1", attributes(c, Update, node(map[string]string{"node-restriction.kubernetes.io/a": "b"}), node(nil))),
		`nodes "n1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/a`)
	wantError(t, as("n1", attributes(c, Update, node(nil), node(nil, corev1.Taint{Key: "k"}))), `nodes "n1" is forbidden: node "n1" is not allowed to modify taints`)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}}
	wantError(t, as("n1", attributes(c, Create, lease, nil)), "<nil>")
	wantError(t, as("n2", attributes(c, Create, lease, nil)),
		`leases.coordination.k8s.io "n1" is forbidden: can only access node lease with the same name as the requesting node`)

	token := func(ref *authenticationv1.BoundObjectReference) *Attributes {
		a := sub(attributes(c, Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}}, nil), "token")
		a.Object, a.Body = nil, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref}}
		return a
	}
	ref := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid"}
	wantError(t, as("n1", token(ref)), "<nil>")
	wantError(t, as("n2", token(ref)), `serviceaccounts "default" is forbidden: node requested token bound to a pod scheduled on a different node`)
	wantError(t, as("n1", token(nil)), `serviceaccounts "default" is forbidden: node requested token not bound to a pod`)
}

func TestRBACEscalation(t *testing.T) {
	objects := append(authz.Bootstrap(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: "jane"}},
	})
	c := cluster(objects...)
	p := NewRBACEscalation(c)
	as := func(a *Attributes) error {
		a.User = &request.User{Name: "jane", Groups: []string{"dev"}}
		_, err := run(t, p, a)
		return err
	}
	role := func(resource string) api.Object {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}}}
	}
	wantError(t, as(attributes(c, Create, role("pods"), nil)), "<nil>")
	wantError(t, as(attributes(c, Create, role("nodes"), nil)),
		`roles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:`+"\n"+
			`{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}`)
	bind := func(role string) api.Object {
		return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	}
	wantError(t, as(attributes(c, Create, bind("view"), nil)), "<nil>")
	if err := as(attributes(c, Create, bind("cluster-admin"), nil)); !apierrors.IsForbidden(err) {
		t.Errorf("binding of cluster-admin: %v, want forbidden", err)
	}
	wantError(t, as(attributes(c, Create, bind("none"), nil)), `clusterroles.rbac.authorization.k8s.io "none" not found`)
	if _, err := run(t, p, attributes(c, Create, bind("cluster-admin"), nil)); err != nil {
		t.Errorf("binding of cluster-admin by an administrator: %v", err)
	}
}

func TestStorage(t *testing.T) {
	class := func(name string, age time.Duration, growing bool) api.Object {
		return &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0).Add(-age)),
				Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			AllowVolumeExpansion: &growing,
		}
	}
	claim := func(name, size string) *corev1.PersistentVolumeClaim {
		out := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
		out.Spec.Resources.Requests = list("storage", size)
		if name != "" {
			out.Spec.StorageClassName = &name
		}
		return out
	}
	c := cluster(class("old", time.Hour, false), class("new", 0, true))
	pvc := claim("", "1Gi")
	a := attributes(c, Create, pvc, nil)
	for _, p := range []Plugin{NewDefaultStorageClass(c), StorageObjectInUseProtection{}} {
		if _, err := run(t, p, a); err != nil {
			t.Fatal(err)
		}
	}
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName != "new" || !cmp.Equal(pvc.Finalizers, []string{"kubernetes.io/pvc-protection"}) {
		t.Errorf("claim = %+v", pvc)
	}
	resize := NewPersistentVolumeClaimResize(c)
	_, err := run(t, resize, attributes(c, Update, claim("new", "2Gi"), claim("new", "1Gi")))
	wantError(t, err, "<nil>")
	_, err = run(t, resize, attributes(c, Update, claim("old", "2Gi"), claim("old", "1Gi")))
	wantError(t, err, `persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`)
}

func TestRuntimeClass(t *testing.T) {
	c := cluster(&nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Overhead: &nodev1.Overhead{PodFixed: list("cpu", "250m")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}},
	})
	p := NewRuntimeClass(c)
	pod := newPod(nil, nil)
	pod.Spec.RuntimeClassName = new("vm")
	if _, err := run(t, p, attributes(c, Create, pod, nil)); err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Overhead.Cpu().String() != "250m" || pod.Spec.NodeSelector["vm"] != "yes" {
		t.Errorf("pod = %+v", pod.Spec)
	}
	pod = newPod(nil, nil)
	pod.Spec.RuntimeClassName, pod.Spec.NodeSelector = new("vm"), map[string]string{"vm": "no"}
	_, err := run(t, p, attributes(c, Create, pod, nil))
	wantError(t, err, `pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no`)
	pod = newPod(nil, nil)
	pod.Spec.RuntimeClassName = new("none")
	_, err = run(t, p, attributes(c, Create, pod, nil))
	wantError(t, err, `pods "p" is forbidden: pod rejected: RuntimeClass "none" not found`)
}

func TestCertificates(t *testing.T) {
	c := cluster(authz.Bootstrap()...)
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: "kubernetes.io/kube-apiserver-client-kubelet"}}
	approve := func(user string) error {
		a := attributes(c, Update, csr, csr)
		a.Subresource, a.User = "approval", &request.User{Name: user}
		_, err := run(t, NewCertificateApproval(c), a)
		return err
	}
	wantError(t, approve("system:serviceaccount:kube-system:certificate-controller"), "<nil>")
	wantError(t, approve("jane"), `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client-kubelet"`)
}
