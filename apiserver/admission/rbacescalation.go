package admission

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa/apiserver/authz"
	"proa/client"
)

// RBACEscalation keeps users from giving rights that they do not have themselves, be it by a role or by a binding, unless
// they may escalate or bind.
type RBACEscalation struct {
	Pass
	rbac *authz.RBAC
}

// NewRBACEscalation returns the plugin.
func NewRBACEscalation(c client.Interface) *RBACEscalation {
	return &RBACEscalation{rbac: authz.NewRBAC(c)}
}

// Name of the plugin.
func (*RBACEscalation) Name() string { return "RBACEscalation" }

// Validate compares the rights given with the rights held.
func (p *RBACEscalation) Validate(ctx context.Context, a *Attributes) error {
	if a.Resource.Group != rbacv1.GroupName || a.Subresource != "" || a.Operation != Create && a.Operation != Update {
		return nil
	}
	switch obj := a.Object.(type) {
	case *rbacv1.Role:
		if old, ok := a.OldObject.(*rbacv1.Role); ok && equality.Semantic.DeepEqual(old.Rules, obj.Rules) {
			return nil
		}
		return p.role(ctx, a, "roles", obj.Rules)
	case *rbacv1.ClusterRole:
		if old, ok := a.OldObject.(*rbacv1.ClusterRole); ok && equality.Semantic.DeepEqual(old.Rules, obj.Rules) &&
			equality.Semantic.DeepEqual(old.AggregationRule, obj.AggregationRule) {
			return nil
		}
		if obj.AggregationRule != nil && !p.rbac.May(ctx, a.User, "escalate", "clusterroles", "", a.Name) {
			everything := []rbacv1.PolicyRule{
				{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
				{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
			}
			if p.rbac.MayGrant(a.User, "", everything) != nil {
				return forbidText(a, "must have cluster-admin privileges to use the aggregationRule")
			}
		}
		return p.role(ctx, a, "clusterroles", obj.Rules)
	case *rbacv1.RoleBinding:
		if old, ok := a.OldObject.(*rbacv1.RoleBinding); ok && old.RoleRef == obj.RoleRef && equality.Semantic.DeepEqual(old.Subjects, obj.Subjects) {
			return nil
		}
		return p.binding(ctx, a, obj.RoleRef)
	case *rbacv1.ClusterRoleBinding:
		if old, ok := a.OldObject.(*rbacv1.ClusterRoleBinding); ok && old.RoleRef == obj.RoleRef && equality.Semantic.DeepEqual(old.Subjects, obj.Subjects) {
			return nil
		}
		return p.binding(ctx, a, obj.RoleRef)
	}
	return nil
}

func (p *RBACEscalation) role(ctx context.Context, a *Attributes, resource string, rules []rbacv1.PolicyRule) error {
	if p.rbac.May(ctx, a.User, "escalate", resource, a.Namespace, a.Object.GetName()) {
		return nil
	}
	if err := p.rbac.MayGrant(a.User, a.Namespace, rules); err != nil {
		return forbid(a, err)
	}
	return nil
}

func (p *RBACEscalation) binding(ctx context.Context, a *Attributes, ref rbacv1.RoleRef) error {
	resource := "clusterroles"
	if ref.Kind == "Role" {
		resource = "roles"
	}
	if p.rbac.May(ctx, a.User, "bind", resource, a.Namespace, ref.Name) {
		return nil
	}
	rules, ok := p.rbac.RoleRules(ref, a.Namespace)
	if !ok {
		group := a.Resource.GroupResource()
		group.Resource = resource
		return apierrors.NewNotFound(group, ref.Name)
	}
	if err := p.rbac.MayGrant(a.User, a.Namespace, rules); err != nil {
		return forbid(a, err)
	}
	return nil
}
