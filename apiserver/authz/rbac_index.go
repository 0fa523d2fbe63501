package authz

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa/apiserver/request"
)

// grant is a role given to a subject by one binding.
type grant struct {
	rules  []rbacv1.PolicyRule
	reason string
}

// subject of a binding. Service accounts are users by their full name.
type subject struct {
	group bool
	name  string
}

// rbacIndex finds grants by subject. It is immutable but for what it remembers.
type rbacIndex struct {
	changes    int64
	stamp      stamp
	cluster    map[subject][]*grant
	namespaced map[subject]map[string][]*grant

	mu   sync.RWMutex
	seen map[string]*permissions
}

// permissions are the grants of one user with one set of groups.
type permissions struct {
	cluster     []*grant
	byNamespace map[string][]*grant
}

// rememberedUsers bounds the memory of permissions.
const rememberedUsers = 4096

func newIndex(r *RBAC) *rbacIndex {
	x := &rbacIndex{
		cluster: map[subject][]*grant{}, namespaced: map[subject]map[string][]*grant{}, seen: map[string]*permissions{},
	}
	for b := range r.clusterRoleBindings.All("") {
		rules, ok := r.RoleRules(b.RoleRef, "")
		if !ok {
			continue
		}
		text := fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of %s %q to ", b.Name, b.RoleRef.Kind, b.RoleRef.Name)
		for _, s := range b.Subjects {
			if key, name, ok := subjectOf(s, ""); ok {
				x.cluster[key] = append(x.cluster[key], &grant{rules, text + name})
			}
		}
	}
	for b := range r.roleBindings.All("") {
		rules, ok := r.RoleRules(b.RoleRef, b.Namespace)
		if !ok {
			continue
		}
		text := fmt.Sprintf("RBAC: allowed by RoleBinding %q of %s %q to ", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name)
		for _, s := range b.Subjects {
			key, name, ok := subjectOf(s, b.Namespace)
			if !ok {
				continue
			}
			if x.namespaced[key] == nil {
				x.namespaced[key] = map[string][]*grant{}
			}
			x.namespaced[key][b.Namespace] = append(x.namespaced[key][b.Namespace], &grant{rules, text + name})
		}
	}
	return x
}

func subjectOf(s rbacv1.Subject, namespace string) (key subject, text string, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return subject{false, s.Name}, fmt.Sprintf("User %q", s.Name), true
	case rbacv1.GroupKind:
		return subject{true, s.Name}, fmt.Sprintf("Group %q", s.Name), true
	case rbacv1.ServiceAccountKind:
		if s.Namespace != "" {
			namespace = s.Namespace
		}
		if namespace == "" {
			return subject{}, "", false
		}
		return subject{false, request.ServiceAccountUsers + namespace + ":" + s.Name}, fmt.Sprintf("ServiceAccount %q", s.Name+"/"+namespace), true
	}
	return subject{}, "", false
}

func (x *rbacIndex) permissions(user *request.User) *permissions {
	key := user.Name + "\x00" + strings.Join(user.Groups, "\x00")
	x.mu.RLock()
	p := x.seen[key]
	x.mu.RUnlock()
	if p != nil {
		return p
	}
	p = &permissions{byNamespace: map[string][]*grant{}}
	add := func(s subject) {
		p.cluster = append(p.cluster, x.cluster[s]...)
		for namespace, grants := range x.namespaced[s] {
			p.byNamespace[namespace] = append(p.byNamespace[namespace], grants...)
		}
	}
	add(subject{false, user.Name})
	for _, group := range user.Groups {
		add(subject{true, group})
	}
	x.mu.Lock()
	if len(x.seen) >= rememberedUsers {
		clear(x.seen)
	}
	x.seen[key] = p
	x.mu.Unlock()
	return p
}

func (p *permissions) find(info *request.Info, namespace string) *grant {
	for _, g := range p.cluster {
		if covers(g.rules, info) {
			return g
		}
	}
	if namespace == "" {
		return nil
	}
	for _, g := range p.byNamespace[namespace] {
		if covers(g.rules, info) {
			return g
		}
	}
	return nil
}

func covers(rules []rbacv1.PolicyRule, info *request.Info) bool {
	for i := range rules {
		if ruleAllows(&rules[i], info) {
			return true
		}
	}
	return false
}

func ruleAllows(rule *rbacv1.PolicyRule, info *request.Info) bool {
	if !has(rule.Verbs, info.Verb) {
		return false
	}
	if !info.IsResource {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool { return matchPath(pattern, info.Path) })
	}
	return has(rule.APIGroups, info.Group) && hasResource(rule.Resources, info.Resource, info.Subresource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, info.Name))
}

func has(list []string, value string) bool {
	for _, s := range list {
		if s == "*" || s == value {
			return true
		}
	}
	return false
}

// hasResource knows "pods", "pods/log", "*/scale" and "*".
func hasResource(list []string, resource, subresource string) bool {
	for _, s := range list {
		if s == "*" {
			return true
		}
		name, sub, _ := strings.Cut(s, "/")
		if sub == subresource && (name == resource || name == "*" && sub != "") {
			return true
		}
	}
	return false
}

func matchPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// Aggregate returns the rules that role has by its aggregationRule: those of every other ClusterRole it selects, each rule
// once, in the order given.
func Aggregate(role *rbacv1.ClusterRole, all iter.Seq[*rbacv1.ClusterRole]) []rbacv1.PolicyRule {
	var selectors []labels.Selector
	for i := range role.AggregationRule.ClusterRoleSelectors {
		if s, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i]); err == nil {
			selectors = append(selectors, s)
		}
	}
	var out []rbacv1.PolicyRule
	for other := range all {
		if other.Name == role.Name {
			continue
		}
		if !slices.ContainsFunc(selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(other.Labels)) }) {
			continue
		}
		for _, rule := range other.Rules {
			if !slices.ContainsFunc(out, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, rule) }) {
				out = append(out, rule)
			}
		}
	}
	return out
}
