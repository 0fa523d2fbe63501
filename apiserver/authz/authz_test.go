package authz

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/api"
	"proa/api/builtin"
	"proa/apiserver/request"
	"proa/client"
	"proa/client/clientfake"
)

func cluster(objects ...api.Object) *clientfake.Client {
	return clientfake.New(builtin.Table(), append(Bootstrap(), objects...)...)
}

func bindUser(name, namespace, kind, role, user string) api.Object {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	subjects := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}
	}
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: ref, Subjects: subjects}
}

// ask parses "verb group/resource[/subresource] [namespace] [name]" or "verb url:/path".
func ask(text string) *request.Info {
	f := strings.Fields(text)
	info := &request.Info{Verb: f[0]}
	if path, ok := strings.CutPrefix(f[1], "url:"); ok {
		info.Path = path
		return info
	}
	info.IsResource = true
	parts := strings.Split(f[1], "/")
	info.Group, info.Resource = parts[0], parts[1]
	if len(parts) > 2 {
		info.Subresource = parts[2]
	}
	if len(f) > 2 && f[2] != "-" {
		info.Namespace = f[2]
	}
	if len(f) > 3 {
		info.Name = f[3]
	}
	return info
}

func TestRBAC(t *testing.T) {
	named := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "named"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}, Verbs: []string{"get"}},
	}}
	scaler := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scaler"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"update"}},
		{NonResourceURLs: []string{"/logs/*"}, Verbs: []string{"get"}},
	}}
	c := cluster(named, scaler,
		bindUser("viewer", "a", "ClusterRole", "view", "jane"),
		bindUser("named", "a", "Role", "named", "joe"),
		bindUser("scaler", "", "ClusterRole", "scaler", "sam"))
	r := NewRBAC(c)
	authenticated := []string{request.AllAuthenticated}
	for _, tc := range []struct {
		user  string
		ask   string
		allow bool
	}{
		{"jane", "get /pods a", true},
		{"jane", "list apps/deployments a", true},
		{"jane", "get /pods b", false},
		{"jane", "get /pods", false},
		{"jane", "delete /pods a", false},
		{"jane", "get /secrets a", false},
		{"jane", "get /pods/log a", true},
		{"jane", "get /pods/exec a", false},
		{"joe", "get /secrets a one", true},
		{"joe", "get /secrets a two", false},
		{"joe", "list /secrets a", false},
		{"sam", "update apps/deployments/scale b x", true},
		{"sam", "update apps/deployments b x", false},
		{"sam", "get url:/logs/kube.log", true},
		{"sam", "get url:/metrics", false},
		{"sam", "get url:/apis/apps/v1", true},
		{"sam", "create authorization.k8s.io/selfsubjectaccessreviews", true},
		{"system:kube-scheduler", "create /pods/binding a x", true},
		{"system:serviceaccount:kube-system:deployment-controller", "create apps/replicasets a", true},
		{"system:serviceaccount:default:deployment-controller", "create apps/replicasets a", false},
	} {
		t.Run(tc.user+" "+tc.ask, func(t *testing.T) {
			d, _, err := r.Authorize(t.Context(), &request.User{Name: tc.user, Groups: authenticated}, ask(tc.ask))
			if err != nil || (d == Allow) != tc.allow {
				t.Errorf("decision = %v, %v, want allowed = %v", d, err, tc.allow)
			}
		})
	}
	_, reason, _ := r.Authorize(t.Context(), &request.User{Name: "jane"}, ask("get /pods a"))
	if want := `RBAC: allowed by RoleBinding "viewer/a" of ClusterRole "view" to User "jane"`; reason != want {
		t.Errorf("reason = %s\nwant     %s", reason, want)
	}
}

func TestRBACFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster()
		r := NewRBAC(c)
		go func() { _ = r.Run(t.Context()) }()
		synctest.Wait()
		allowed := func() bool {
			d, _, _ := r.Authorize(t.Context(), &request.User{Name: "jane"}, ask("get /pods a"))
			return d == Allow
		}
		if allowed() {
			t.Fatal("allowed without a binding")
		}
		if index := r.current(); index != r.current() {
			t.Error("the index is made anew without a change")
		}
		b := bindUser("viewer", "a", "ClusterRole", "view", "jane")
		c.Put(b)
		synctest.Wait()
		if !allowed() {
			t.Error("forbidden with a binding")
		}
		c.Remove(b)
		synctest.Wait()
		if allowed() {
			t.Error("allowed after the binding went")
		}
	})
}

// deaf is a client that is told of no change.
type deaf struct{ client.Interface }

func (deaf) Subscribe(ctx context.Context, note func(client.Event), _ ...client.Scope) error {
	note(client.Event{})
	<-ctx.Done()
	return nil
}

// A new binding counts before the subscription has told of it.
func TestRBACAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cluster()
		r := NewRBAC(deaf{c})
		go func() { _ = r.Run(t.Context()) }()
		synctest.Wait()
		get := func() Decision {
			d, _, _ := r.Authorize(t.Context(), &request.User{Name: "jane"}, ask("get /pods a"))
			return d
		}
		if get() == Allow {
			t.Fatal("allowed without a binding")
		}
		c.Put(bindUser("viewer", "a", "ClusterRole", "view", "jane"))
		if get() != Allow {
			t.Error("forbidden with a binding")
		}
	})
}

func TestEscalation(t *testing.T) {
	c := cluster(bindUser("editor", "a", "ClusterRole", "edit", "jane"))
	r := NewRBAC(c)
	jane := &request.User{Name: "jane", Groups: []string{"dev"}}
	may := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "delete"}}}
	if err := r.MayGrant(jane, "a", may); err != nil {
		t.Errorf("what jane has: %v", err)
	}
	err := r.MayGrant(jane, "a", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
	})
	want := `user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list"]}`
	if err == nil || err.Error() != want {
		t.Errorf("error = %v\nwant    %s", err, want)
	}
	if err := r.MayGrant(jane, "b", may); err == nil {
		t.Error("rights in one namespace may be given in another")
	}
}

func TestNode(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{Namespace: "a", Name: "data"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			NodePublishSecretRef: &corev1.SecretReference{Namespace: "csi", Name: "key"}}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "n1", ServiceAccountName: "sa",
		Volumes: []corev1.Volume{
			{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "used"}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		},
		Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}}}},
	}}
	n := NewNode(cluster(claim, volume, pod))
	for _, tc := range []struct {
		node, ask string
		allow     bool
	}{
		{"n1", "get /secrets a used", true},
		{"n2", "get /secrets a used", false},
		{"n1", "get /secrets a other", false},
		{"n1", "get /secrets csi key", true},
		{"n1", "watch /secrets a used", true},
		{"n1", "list /secrets a", false},
		{"n1", "update /secrets a used", false},
		{"n1", "create coordination.k8s.io/leases kube-node-lease", true},
		{"n1", "update coordination.k8s.io/leases kube-node-lease n1", true},
		{"n1", "update coordination.k8s.io/leases kube-node-lease n2", false},
		{"n1", "update coordination.k8s.io/leases default n1", false},
		{"n1", "update storage.k8s.io/csinodes - n1", true},
		{"n1", "update storage.k8s.io/csinodes - n2", false},
		{"n1", "list /pods", true},
		{"n1", "update /pods/status a p", true},
		{"n1", "update /pods a p", false},
		{"n1", "get apps/deployments a x", false},
		{"n1", "create certificates.k8s.io/certificatesigningrequests", true},
	} {
		t.Run(tc.node+" "+tc.ask, func(t *testing.T) {
			user := &request.User{Name: "system:node:" + tc.node, Groups: []string{request.Nodes}}
			d, reason, err := n.Authorize(t.Context(), user, ask(tc.ask))
			if err != nil || (d == Allow) != tc.allow {
				t.Errorf("decision = %v %q, %v, want allowed = %v", d, reason, err, tc.allow)
			}
		})
	}
	for _, info := range []*request.Info{
		{IsResource: true, Verb: "get", Resource: "configmaps", Namespace: "a", Name: "env"},
		{IsResource: true, Verb: "list", Resource: "configmaps", Namespace: "a", FieldSelector: "metadata.name=env"},
		{IsResource: true, Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "a", Name: "sa"},
		{IsResource: true, Verb: "get", Resource: "persistentvolumes", Name: "pv"},
		{IsResource: true, Verb: "get", Resource: "persistentvolumeclaims", Namespace: "a", Name: "data"},
	} {
		for node, allow := range map[string]bool{"n1": true, "n2": false} {
			user := &request.User{Name: "system:node:" + node, Groups: []string{request.Nodes}}
			if d, reason, _ := n.Authorize(t.Context(), user, info); (d == Allow) != allow {
				t.Errorf("%s %+v: %v %q, want allowed = %v", node, info, d, reason, allow)
			}
		}
	}
	if d, _, _ := n.Authorize(t.Context(), &request.User{Name: "system:node:n1"}, ask("list /pods")); d != NoOpinion {
		t.Error("a user outside of system:nodes is a node")
	}
}

func TestBootstrap(t *testing.T) {
	seen := map[string]api.Object{}
	for _, obj := range Bootstrap() {
		key := strings.TrimPrefix(strings.TrimPrefix(builtin.Table().KindOf(obj).Kind, "*"), "v1.") + "/" + obj.GetNamespace() + "/" + obj.GetName()
		if seen[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		seen[key] = obj
		if obj.GetAnnotations()[autoupdateAnnotation] != "true" || obj.GetLabels()[bootstrappingLabel] != "rbac-defaults" {
			t.Errorf("%s is not marked as a default", key)
		}
	}
	for _, obj := range seen {
		var ref rbacv1.RoleRef
		switch b := obj.(type) {
		case *rbacv1.ClusterRoleBinding:
			ref = b.RoleRef
		case *rbacv1.RoleBinding:
			ref = b.RoleRef
		default:
			continue
		}
		namespace := ""
		if ref.Kind == "Role" {
			namespace = obj.GetNamespace()
		}
		if seen[ref.Kind+"/"+namespace+"/"+ref.Name] == nil {
			t.Errorf("%s is bound to %s %s, which does not exist", obj.GetName(), ref.Kind, ref.Name)
		}
	}
	admin := seen["ClusterRole//admin"].(*rbacv1.ClusterRole)
	for _, text := range []string{"create rbac.authorization.k8s.io/roles a", "delete /pods a", "get apps/deployments a"} {
		if !covers(admin.Rules, ask(text)) {
			t.Errorf("admin may not %s", text)
		}
	}
}

func TestReconcile(t *testing.T) {
	var wanted *rbacv1.ClusterRole
	for _, obj := range Bootstrap() {
		if obj.GetName() == "system:basic-user" {
			if role, ok := obj.(*rbacv1.ClusterRole); ok {
				wanted = role
			}
		}
	}
	if update, _ := Reconcile(wanted, wanted); update != nil {
		t.Errorf("nothing to do, yet: %v", update)
	}
	changed := wanted.DeepCopy()
	added := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	changed.Rules = append(changed.Rules[1:], added)
	update, replace := Reconcile(changed, wanted)
	if update == nil || replace {
		t.Fatalf("update = %v, %v", update, replace)
	}
	rules := update.(*rbacv1.ClusterRole).Rules
	for _, text := range []string{"get /pods a", "create authorization.k8s.io/selfsubjectaccessreviews", "create authentication.k8s.io/selfsubjectreviews"} {
		if !covers(rules, ask(text)) {
			t.Errorf("after reconciliation the role does not allow %s", text)
		}
	}
	changed.Annotations[autoupdateAnnotation] = "false"
	if update, _ := Reconcile(changed, wanted); update != nil {
		t.Error("a role is changed against its operator's will")
	}
}

func TestReviews(t *testing.T) {
	c := cluster(bindUser("viewer", "a", "ClusterRole", "view", "jane"))
	posts := Posts(Default(c))
	out, err := posts["subjectaccessreviews.authorization.k8s.io"](t.Context(), request.Post{Body: &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Resource: "pods"}},
	}})
	if err != nil || !out.(*authorizationv1.SubjectAccessReview).Status.Allowed {
		t.Errorf("review = %+v, %v", out, err)
	}
	_, err = posts["subjectaccessreviews.authorization.k8s.io"](t.Context(), request.Post{Body: &authorizationv1.SubjectAccessReview{}})
	if err == nil || !strings.Contains(err.Error(), "at least one of user or group must be specified") {
		t.Errorf("empty review: %v", err)
	}
	_, err = posts["localsubjectaccessreviews.authorization.k8s.io"](t.Context(), request.Post{Namespace: "b", Body: &authorizationv1.LocalSubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "jane", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "a", Verb: "get", Resource: "pods"}},
	}})
	if err == nil || err.Error() != "spec.resourceAttributes.namespace must match namespace: b" {
		t.Errorf("review of another namespace: %v", err)
	}
	out, err = posts["selfsubjectrulesreviews.authorization.k8s.io"](t.Context(), request.Post{
		User: &request.User{Name: "jane"}, Body: &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "a"}},
	})
	if err != nil || len(out.(*authorizationv1.SelfSubjectRulesReview).Status.ResourceRules) == 0 {
		t.Errorf("rules = %+v, %v", out, err)
	}
}
