package authz

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"proa/apiserver/request"
)

// EscalationError says which rights a user would give without having them.
type EscalationError struct {
	User    *request.User
	Missing []rbacv1.PolicyRule
}

func (e *EscalationError) Error() string {
	lines := make([]string, 0, len(e.Missing))
	for _, rule := range compact(e.Missing) {
		lines = append(lines, ruleText(rule))
	}
	slices.Sort(lines)
	return fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		e.User.Name, e.User.Groups, strings.Join(lines, "\n"))
}

// MayGrant returns nil when the user holds all of rules in a namespace ("" for the whole cluster), else an
// *EscalationError. Who may do anything may grant anything.
func (r *RBAC) MayGrant(user *request.User, namespace string, rules []rbacv1.PolicyRule) error {
	if user.In(request.Masters) {
		return nil
	}
	if ok, missing := validation.Covers(r.Rules(user, namespace), rules); !ok {
		return &EscalationError{user, missing}
	}
	return nil
}

// May reports whether the user may use verb on a named object of the RBAC group.
func (r *RBAC) May(ctx context.Context, user *request.User, verb, resource, namespace, name string) bool {
	if user.In(request.Masters) {
		return true
	}
	d, _, _ := r.Authorize(ctx, user, &request.Info{
		IsResource: true, Verb: verb, Group: rbacv1.GroupName, Version: "v1", Resource: resource, Namespace: namespace, Name: name,
	})
	return d == Allow
}

// compact joins the verbs of rules about the same resource.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type simple struct{ group, resource, name string }
	at := map[simple]int{}
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.ResourceNames) > 1 || len(rule.NonResourceURLs) > 0 {
			out = append(out, rule)
			continue
		}
		key := simple{group: rule.APIGroups[0], resource: rule.Resources[0], name: strings.Join(rule.ResourceNames, "")}
		i, ok := at[key]
		if !ok {
			at[key] = len(out)
			out = append(out, *rule.DeepCopy())
			continue
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains(out[i].Verbs, verb) {
				out[i].Verbs = append(out[i].Verbs, verb)
			}
		}
	}
	return out
}

func ruleText(rule rbacv1.PolicyRule) string {
	var parts []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			quoted := make([]string, 0, len(values))
			for _, v := range values {
				quoted = append(quoted, fmt.Sprintf("%q", v))
			}
			parts = append(parts, name+":["+strings.Join(quoted, " ")+"]")
		}
	}
	add("APIGroups", rule.APIGroups)
	add("Resources", rule.Resources)
	add("NonResourceURLs", rule.NonResourceURLs)
	add("ResourceNames", rule.ResourceNames)
	add("Verbs", rule.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}
