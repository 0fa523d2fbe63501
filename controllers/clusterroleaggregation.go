package controllers

import (
	"cmp"
	"context"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa/client"
	"proa/internal/queue"
)

// clusterRoleAggregation fills in the rules of ClusterRoles that are made of others.
type clusterRoleAggregation struct {
	Deps
	queue *queue.Queue[string]
	roles client.TypedLister[*rbacv1.ClusterRole]
}

func newClusterRoleAggregation(d Deps) Controller {
	return &clusterRoleAggregation{Deps: d, queue: queue.New[string]()}
}

func (c *clusterRoleAggregation) Run(ctx context.Context) error {
	c.roles = client.For[*rbacv1.ClusterRole](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(client.Event) {
		// Any role may be a part of any other; there are few of the latter.
		for r := range c.roles.All("") {
			if r.AggregationRule != nil {
				c.queue.Add(r.Name)
			}
		}
	}, client.For[*rbacv1.ClusterRole](c.Client).Scope())
}

func (c *clusterRoleAggregation) sync(ctx context.Context, name string) (time.Duration, error) {
	role, ok := c.roles.Get("", name)
	if !ok || role.AggregationRule == nil {
		return 0, nil
	}
	var parts []*rbacv1.ClusterRole
	for _, s := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return 0, err
		}
		for r := range c.roles.All("") {
			if r.Name != name && selector.Matches(labels.Set(r.Labels)) && !slices.Contains(parts, r) {
				parts = append(parts, r)
			}
		}
	}
	slices.SortFunc(parts, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	var rules []rbacv1.PolicyRule
	for _, p := range parts {
		for _, rule := range p.Rules {
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return 0, nil
	}
	next := role.DeepCopy()
	next.Rules = rules
	_, err := client.For[*rbacv1.ClusterRole](c.Client).Update(ctx, next)
	return 0, ignoreGone(err)
}
