package cluster

import (
	"fmt"
	"testing"
)

const rbac = "/apis/rbac.authorization.k8s.io/v1"

func roleOf(name, rules string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, name, rules)
}

func bindingOf(name, kind, role string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"friend"}]}`, name, kind, role)
}

const (
	readPods  = `{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}`
	readNodes = `{"apiGroups":[""],"resources":["nodes"],"verbs":["list","get"]}`
)

// Nobody gives rights that they do not have.
func testEscalation(t *testing.T, d *door) {
	d.namespace(t, "rise")
	d.bind(t, "rise", "admin", "ClusterRole", "admin", "eve")
	d.made(t, rbac+"/namespaces/rise/roles", roleOf("strong", readNodes), nil)
	d.made(t, rbac+"/namespaces/rise/roles", roleOf("weak", readPods), nil)
	d.made(t, rbac+"/clusterroles", roleOf("rise-strong", readNodes), nil)
	eve := d.user(t, "eve", "ops")
	const roles, bindings = rbac + "/namespaces/rise/roles", rbac + "/namespaces/rise/rolebindings"
	const not = `user "eve" (groups=["ops" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n"
	const nodes = `{APIGroups:[""], Resources:["nodes"], Verbs:["list" "get"]}`
	for _, tc := range []struct{ name, ask, body, want string }{
		{"role of what she has", "POST " + roles, roleOf("own", readPods), "201"},
		{"role of more", "POST " + roles, roleOf("more", readNodes),
			`403 Forbidden: roles.rbac.authorization.k8s.io "more" is forbidden: ` + not + nodes},
		{"role of both", "POST " + roles, roleOf("both", readPods+","+readNodes+`,{"apiGroups":["apps"],"resources":["*"],"verbs":["*"]}`),
			`403 Forbidden: roles.rbac.authorization.k8s.io "both" is forbidden: ` + not + nodes + "\n" + `{APIGroups:["apps"], Resources:["*"], Verbs:["*"]}`},
		{"named object", "POST " + roles, roleOf("named", `{"apiGroups":[""],"resources":["nodes"],"resourceNames":["n1"],"verbs":["get"]}`),
			`403 Forbidden: roles.rbac.authorization.k8s.io "named" is forbidden: ` + not + `{APIGroups:[""], Resources:["nodes"], ResourceNames:["n1"], Verbs:["get"]}`},
		{"dry run", "POST " + roles + "?dryRun=All", roleOf("more", readNodes),
			`403 Forbidden: roles.rbac.authorization.k8s.io "more" is forbidden: ` + not + nodes},
		{"update to more", "PUT " + roles + "/weak", roleOf("weak", readNodes),
			`403 Forbidden: roles.rbac.authorization.k8s.io "weak" is forbidden: ` + not + nodes},
		{"patch to more", "PATCH " + roles + "/weak", `{"rules":[` + readNodes + `]}`,
			`403 Forbidden: roles.rbac.authorization.k8s.io "weak" is forbidden: ` + not + nodes},
		{"label a stronger role", "PATCH " + roles + "/strong", `{"metadata":{"labels":{"a":"b"}}}`, "200"},
		{"update to less", "PATCH " + roles + "/strong", `{"rules":[` + readPods + `]}`, "200"},
		{"cluster role", "POST " + rbac + "/clusterroles", roleOf("own", readPods),
			`403 Forbidden: clusterroles.rbac.authorization.k8s.io is forbidden: User "eve" cannot create resource "clusterroles" in API group "rbac.authorization.k8s.io" at the cluster scope`},
		{"binding to what she has", "POST " + bindings, bindingOf("view", "ClusterRole", "view"), "201"},
		{"binding to more", "POST " + bindings, bindingOf("strong", "ClusterRole", "rise-strong"),
			`403 Forbidden: rolebindings.rbac.authorization.k8s.io "strong" is forbidden: ` + not + nodes},
		{"binding to all", "POST " + bindings, bindingOf("all", "ClusterRole", "cluster-admin"),
			`403 Forbidden: rolebindings.rbac.authorization.k8s.io "all" is forbidden: ` + not + `{APIGroups:["*"], Resources:["*"], Verbs:["*"]}` + "\n" + `{NonResourceURLs:["*"], Verbs:["*"]}`},
		{"binding to nothing", "POST " + bindings, bindingOf("ghost", "Role", "ghost"),
			`404 NotFound: roles.rbac.authorization.k8s.io "ghost" not found`},
		{"cluster binding", "POST " + rbac + "/clusterrolebindings", bindingOf("rise", "ClusterRole", "view"),
			`403 Forbidden: clusterrolebindings.rbac.authorization.k8s.io is forbidden: User "eve" cannot create resource "clusterrolebindings" in API group "rbac.authorization.k8s.io" at the cluster scope`},
		{"another namespace", "POST " + rbac + "/namespaces/default/roles", roleOf("own", readPods),
			`403 Forbidden: roles.rbac.authorization.k8s.io is forbidden: User "eve" cannot create resource "roles" in API group "rbac.authorization.k8s.io" in the namespace "default"`},
	} {
		t.Run(tc.name, func(t *testing.T) { d.wants(t, tc.want, eve, tc.ask, tc.body) })
	}
	// Another subject in a binding is as much a grant as a new binding.
	d.made(t, bindings, bindingOf("given", "ClusterRole", "rise-strong"), nil)
	d.wants(t, `403 Forbidden: rolebindings.rbac.authorization.k8s.io "given" is forbidden: `+not+nodes, eve, "PATCH "+bindings+"/given",
		`{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"eve"}]}`)
	d.wants(t, "200", eve, "DELETE "+bindings+"/given", nil)
}

// The verbs escalate and bind lift the rule, for what they name.
func testEscalateAndBind(t *testing.T, d *door) {
	d.namespace(t, "lift")
	d.made(t, rbac+"/clusterroles", roleOf("lift-roles", `{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["create","update","patch","escalate"]}`), nil)
	d.made(t, rbac+"/clusterroles", roleOf("lift-bind",
		`{"apiGroups":["rbac.authorization.k8s.io"],"resources":["rolebindings","clusterrolebindings"],"verbs":["create"]},
		{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"resourceNames":["edit"],"verbs":["bind"]}`), nil)
	d.made(t, rbac+"/clusterroles", roleOf("lift-cluster", `{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["create"]}`), nil)
	d.bind(t, "lift", "maker", "ClusterRole", "lift-roles", "maker")
	d.bind(t, "", "lift-binder", "ClusterRole", "lift-bind", "binder")
	d.bind(t, "", "lift-cluster", "ClusterRole", "lift-cluster", "author")
	maker, binder, author := d.user(t, "maker"), d.user(t, "binder"), d.user(t, "author")
	const roles, bindings = rbac + "/namespaces/lift/roles", rbac + "/namespaces/lift/rolebindings"
	d.wants(t, "201", maker, "POST "+roles, roleOf("strong", readNodes))
	d.wants(t, "200", maker, "PATCH "+roles+"/strong", `{"rules":[`+readNodes+`,`+readPods+`]}`)
	d.wants(t, "201", binder, "POST "+bindings, bindingOf("edit", "ClusterRole", "edit"))
	d.wants(t, "201", binder, "POST "+rbac+"/clusterrolebindings", bindingOf("lift-edit", "ClusterRole", "edit"))
	const not = `user "binder" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` + "\n"
	d.wants(t, `403 Forbidden: rolebindings.rbac.authorization.k8s.io "strong" is forbidden: `+not+
		`{APIGroups:[""], Resources:["nodes"], Verbs:["list" "get"]}`+"\n"+`{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`,
		binder, "POST "+bindings, bindingOf("strong", "Role", "strong"))
	d.wants(t, `403 Forbidden: clusterroles.rbac.authorization.k8s.io "lift-all" is forbidden: must have cluster-admin privileges to use the aggregationRule`,
		author, "POST "+rbac+"/clusterroles", `{"metadata":{"name":"lift-all"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]},"rules":[]}`)
	// A label that a default role collects would give the rules to everybody who has that role.
	d.wants(t, `403 Forbidden: clusterroles.rbac.authorization.k8s.io "lift-view" is forbidden: user "author" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:`+"\n"+
		`{APIGroups:[""], Resources:["nodes"], Verbs:["list" "get"]}`,
		author, "POST "+rbac+"/clusterroles", `{"metadata":{"name":"lift-view","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[`+readNodes+`]}`)
}
