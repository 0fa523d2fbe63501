package authz

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/apiserver/request"
	"proa/client"
)

// RBAC decides by the Roles, ClusterRoles and their bindings. It keeps an index of them that is made anew at the first
// question after a change, and remembers what applies to each user and set of groups. It is safe for concurrent use.
type RBAC struct {
	client              client.Interface
	roles               client.TypedLister[*rbacv1.Role]
	clusterRoles        client.TypedLister[*rbacv1.ClusterRole]
	roleBindings        client.TypedLister[*rbacv1.RoleBinding]
	clusterRoleBindings client.TypedLister[*rbacv1.ClusterRoleBinding]

	// changes counts what a running subscription has seen; it is 0 while nothing tells of changes.
	changes atomic.Int64
	mu      sync.Mutex
	index   atomic.Pointer[rbacIndex]
}

// NewRBAC returns the authorizer.
func NewRBAC(c client.Interface) *RBAC {
	ctx := context.Background()
	return &RBAC{
		client:              c,
		roles:               client.For[*rbacv1.Role](c).Lister(ctx),
		clusterRoles:        client.For[*rbacv1.ClusterRole](c).Lister(ctx),
		roleBindings:        client.For[*rbacv1.RoleBinding](c).Lister(ctx),
		clusterRoleBindings: client.For[*rbacv1.ClusterRoleBinding](c).Lister(ctx),
	}
}

// Run follows changes until ctx ends, so that the index is kept between questions.
func (r *RBAC) Run(ctx context.Context) error {
	defer r.changes.Store(0)
	synced := false
	return r.client.Subscribe(ctx, func(e client.Event) {
		synced = synced || e.Synced()
		if synced {
			r.changes.Add(1)
		}
	}, client.For[*rbacv1.Role](r.client).Scope(), client.For[*rbacv1.ClusterRole](r.client).Scope(),
		client.For[*rbacv1.RoleBinding](r.client).Scope(), client.For[*rbacv1.ClusterRoleBinding](r.client).Scope())
}

// current returns an index that holds every change seen before the call.
func (r *RBAC) current() *rbacIndex {
	changes := r.changes.Load()
	if x := r.index.Load(); x != nil && changes != 0 && x.changes == changes {
		return x
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changes = r.changes.Load()
	if x := r.index.Load(); x != nil && changes != 0 && x.changes == changes {
		return x
	}
	return r.renew(changes)
}

// renew makes a new index. The caller holds mu.
func (r *RBAC) renew(changes int64) *rbacIndex {
	stamp := r.stamp()
	x := newIndex(r)
	x.changes, x.stamp = changes, stamp
	r.index.Store(x)
	return x
}

// caughtUp returns an index that holds all that is committed, also what the subscription has yet to tell of, or nil when
// x is one already: who was given a role may use it at once.
func (r *RBAC) caughtUp(x *rbacIndex) *rbacIndex {
	if r.stamp() == x.stamp {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if newer := r.index.Load(); newer != x && newer.stamp == r.stamp() {
		return newer
	}
	return r.renew(r.changes.Load())
}

// stamp differs for different sets of roles and bindings.
type stamp struct {
	objects   int
	revisions uint64
}

func (r *RBAC) stamp() (s stamp) {
	count := func(o metav1.Object) {
		revision, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // always a number
		s.objects, s.revisions = s.objects+1, s.revisions+revision
	}
	for o := range r.roles.All("") {
		count(o)
	}
	for o := range r.clusterRoles.All("") {
		count(o)
	}
	for o := range r.roleBindings.All("") {
		count(o)
	}
	for o := range r.clusterRoleBindings.All("") {
		count(o)
	}
	return s
}

// Authorize allows what some role that is bound to the user allows.
func (r *RBAC) Authorize(_ context.Context, user *request.User, info *request.Info) (Decision, string, error) {
	if user == nil {
		return NoOpinion, "", nil
	}
	x := r.current()
	g := x.permissions(user).find(info, info.Namespace)
	if g == nil {
		if x = r.caughtUp(x); x != nil {
			g = x.permissions(user).find(info, info.Namespace)
		}
	}
	if g != nil {
		return Allow, g.reason, nil
	}
	return NoOpinion, "", nil
}

// Rules returns all rules that apply to the user in a namespace ("" for the whole cluster), shared: they may not be changed.
func (r *RBAC) Rules(user *request.User, namespace string) []rbacv1.PolicyRule {
	p := r.current().permissions(user)
	var out []rbacv1.PolicyRule
	for _, g := range p.cluster {
		out = append(out, g.rules...)
	}
	if namespace != "" {
		for _, g := range p.byNamespace[namespace] {
			out = append(out, g.rules...)
		}
	}
	return out
}

// RoleRules returns the rules of the role that a binding in namespace refers to, and whether it exists.
func (r *RBAC) RoleRules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool) {
	if ref.Kind == "Role" {
		role, ok := r.roles.Get(namespace, ref.Name)
		if !ok {
			return nil, false
		}
		return role.Rules, true
	}
	role, ok := r.clusterRoles.Get("", ref.Name)
	if !ok {
		return nil, false
	}
	if role.AggregationRule != nil {
		return Aggregate(role, r.clusterRoles.All("")), true
	}
	return role.Rules, true
}
