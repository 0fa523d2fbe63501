package authz

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"proa/api"
)

//go:embed policy/*.yaml
var policy embed.FS

// Labels and annotations of the default roles and bindings.
const (
	bootstrappingLabel   = "kubernetes.io/bootstrapping"
	autoupdateAnnotation = "rbac.authorization.kubernetes.io/autoupdate"
	controllerPrefix     = "system:controller:"
)

// Bootstrap returns the default roles and bindings, fresh copies in the order they are to be made: ClusterRoles,
// ClusterRoleBindings, Roles, RoleBindings. It panics when the embedded files are broken, which a test rules out.
func Bootstrap() []api.Object {
	var out []api.Object
	roles := load[rbacv1.ClusterRole]("clusterroles.yaml")
	controllers := load[rbacv1.ClusterRole]("controllers.yaml")
	roles = append(roles, controllers...)
	// The files list what a role aggregates before the role itself.
	for _, role := range roles {
		if role.AggregationRule != nil {
			role.Rules = Aggregate(role, slices.Values(roles))
		}
		out = append(out, mark(role))
	}
	for _, b := range load[rbacv1.ClusterRoleBinding]("clusterrolebindings.yaml") {
		out = append(out, mark(b))
	}
	for _, role := range controllers {
		account := strings.TrimPrefix(role.Name, controllerPrefix)
		out = append(out, mark(&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: metav1.NamespaceSystem}},
		}))
	}
	for _, role := range load[rbacv1.Role]("roles.yaml") {
		out = append(out, mark(role))
	}
	for _, b := range load[rbacv1.RoleBinding]("rolebindings.yaml") {
		out = append(out, mark(b))
	}
	return out
}

func mark[T api.Object](obj T) T {
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[bootstrappingLabel] = "rbac-defaults"
	obj.SetLabels(labels)
	obj.SetAnnotations(map[string]string{autoupdateAnnotation: "true"})
	return obj
}

// load reads the documents of an embedded file.
func load[T any](name string) []*T {
	data, err := policy.ReadFile("policy/" + name)
	if err != nil {
		panic(fmt.Sprintf("authz: %v", err))
	}
	var out []*T
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		obj := new(T)
		if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
			panic(fmt.Sprintf("authz: policy/%s: %v", name, err))
		}
		out = append(out, obj)
	}
	return out
}

// nodeRules are what every node agent may do.
func nodeRules() []rbacv1.PolicyRule {
	for _, role := range load[rbacv1.ClusterRole]("clusterroles.yaml") {
		if role.Name == "system:node" {
			return role.Rules
		}
	}
	panic("authz: no role system:node")
}

// Reconcile returns what a default object becomes at a start when the cluster already holds present: missing rules,
// subjects, labels and annotations are added, nothing an operator added is taken away. Nil means there is nothing to
// change. A binding whose roleRef differs cannot be updated: replace reports that it has to be deleted and made anew. An
// operator switches this off for an object by the annotation rbac.authorization.kubernetes.io/autoupdate: "false".
func Reconcile(present, wanted api.Object) (update api.Object, replace bool) {
	if present.GetAnnotations()[autoupdateAnnotation] == "false" {
		return nil, false
	}
	next := present.DeepCopyObject().(api.Object)
	switch want := wanted.(type) {
	case *rbacv1.ClusterRole:
		have := next.(*rbacv1.ClusterRole)
		if want.AggregationRule != nil {
			have.AggregationRule = addSelectors(have.AggregationRule, want.AggregationRule)
		} else {
			have.Rules = addRules(have.Rules, want.Rules)
		}
	case *rbacv1.Role:
		have := next.(*rbacv1.Role)
		have.Rules = addRules(have.Rules, want.Rules)
	case *rbacv1.ClusterRoleBinding:
		have := next.(*rbacv1.ClusterRoleBinding)
		if have.RoleRef != want.RoleRef {
			return wanted, true
		}
		have.Subjects = addSubjects(have.Subjects, want.Subjects)
	case *rbacv1.RoleBinding:
		have := next.(*rbacv1.RoleBinding)
		if have.RoleRef != want.RoleRef {
			return wanted, true
		}
		have.Subjects = addSubjects(have.Subjects, want.Subjects)
	}
	next.SetLabels(merge(next.GetLabels(), wanted.GetLabels()))
	next.SetAnnotations(merge(next.GetAnnotations(), wanted.GetAnnotations()))
	if equality.Semantic.DeepEqual(present, next) {
		return nil, false
	}
	return next, false
}

func addSelectors(have, want *rbacv1.AggregationRule) *rbacv1.AggregationRule {
	if have == nil {
		return want.DeepCopy()
	}
	for _, s := range want.ClusterRoleSelectors {
		if !slices.ContainsFunc(have.ClusterRoleSelectors, func(h metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(h, s) }) {
			have.ClusterRoleSelectors = append(have.ClusterRoleSelectors, s)
		}
	}
	return have
}

func addRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	_, missing := validation.Covers(have, want)
	return append(have, compact(missing)...)
}

func addSubjects(have, want []rbacv1.Subject) []rbacv1.Subject {
	for _, s := range want {
		if !slices.Contains(have, s) {
			have = append(have, s)
		}
	}
	return have
}

func merge(have, want map[string]string) map[string]string {
	for k, v := range want {
		if have == nil {
			have = map[string]string{}
		}
		if _, ok := have[k]; !ok {
			have[k] = v
		}
	}
	return have
}
