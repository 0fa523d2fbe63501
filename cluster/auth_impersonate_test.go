package cluster

import (
	"strings"
	"testing"
)

func testImpersonation(t *testing.T, d *door) {
	d.namespace(t, "masks")
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	d.made(t, roles, `{"metadata":{"name":"masks"},"rules":[
		{"apiGroups":[""],"resources":["users"],"resourceNames":["bob","system:anonymous"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["groups"],"resourceNames":["dev","system:unauthenticated"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["uids"],"resourceNames":["u-1"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["userextras/scopes"],"resourceNames":["view","edit"],"verbs":["impersonate"]}]}`, nil)
	d.made(t, roles, `{"metadata":{"name":"masks-accounts"},"rules":[{"apiGroups":[""],"resources":["serviceaccounts"],"verbs":["impersonate"]}]}`, nil)
	d.bind(t, "", "masks", "ClusterRole", "masks", "actor")
	d.bind(t, "masks", "masks", "ClusterRole", "masks-accounts", "actor")
	actor := d.user(t, "actor", "troupe")
	for _, tc := range []struct {
		name    string
		headers []string
		want    string
	}{
		{"user", []string{"Impersonate-User", "bob"}, `{"username":"bob","groups":["system:authenticated"]}`},
		{"group", []string{"Impersonate-User", "bob", "Impersonate-Group", "dev"}, `{"username":"bob","groups":["dev","system:authenticated"]}`},
		{"uid", []string{"Impersonate-User", "bob", "Impersonate-Uid", "u-1"}, `{"username":"bob","uid":"u-1","groups":["system:authenticated"]}`},
		{"extra", []string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "view", "Impersonate-Extra-Scopes", "edit"},
			`{"username":"bob","groups":["system:authenticated"],"extra":{"scopes":["view","edit"]}}`},
		{"anonymous", []string{"Impersonate-User", "system:anonymous"},
			`403 Forbidden: selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`},
		{"service account", []string{"Impersonate-User", "system:serviceaccount:masks:robot"},
			`{"username":"system:serviceaccount:masks:robot","groups":["system:serviceaccounts","system:serviceaccounts:masks","system:authenticated"]}`},
		{"other user", []string{"Impersonate-User", "eve"},
			`403 Forbidden: users "eve" is forbidden: User "actor" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{"other group", []string{"Impersonate-User", "bob", "Impersonate-Group", "dev", "Impersonate-Group", "system:masters"},
			`403 Forbidden: groups "system:masters" is forbidden: User "actor" cannot impersonate resource "groups" in API group "" at the cluster scope`},
		{"other uid", []string{"Impersonate-User", "bob", "Impersonate-Uid", "u-2"},
			`403 Forbidden: uids.authentication.k8s.io "u-2" is forbidden: User "actor" cannot impersonate resource "uids" in API group "authentication.k8s.io" at the cluster scope`},
		{"other extra value", []string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "admin"},
			`403 Forbidden: userextras.authentication.k8s.io "admin" is forbidden: User "actor" cannot impersonate resource "userextras/scopes" in API group "authentication.k8s.io" at the cluster scope`},
		{"other extra key", []string{"Impersonate-User", "bob", "Impersonate-Extra-Example.com%2fTeam", "view"},
			`403 Forbidden: userextras.authentication.k8s.io "view" is forbidden: User "actor" cannot impersonate resource "userextras/example.com/team" in API group "authentication.k8s.io" at the cluster scope`},
		{"service account elsewhere", []string{"Impersonate-User", "system:serviceaccount:kube-system:robot"},
			`403 Forbidden: serviceaccounts "robot" is forbidden: User "actor" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "kube-system"`},
		{"no service account", []string{"Impersonate-User", "system:serviceaccount:masks"},
			`403 Forbidden: users "system:serviceaccount:masks" is forbidden: User "actor" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{"no service account either", []string{"Impersonate-User", "system:serviceaccount:masks:robot:x"},
			`403 Forbidden: users "system:serviceaccount:masks:robot:x" is forbidden: User "actor" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{"node", []string{"Impersonate-User", "system:node:n1", "Impersonate-Group", "system:nodes"},
			`403 Forbidden: users "system:node:n1" is forbidden: User "actor" cannot impersonate resource "users" in API group "" at the cluster scope`},
		{"group alone", []string{"Impersonate-Group", "dev"},
			`400 BadRequest: requested impersonation of groups, uid or extra without impersonating a user`},
		{"uid alone", []string{"Impersonate-Uid", "u-1"},
			`400 BadRequest: requested impersonation of groups, uid or extra without impersonating a user`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := d.who(t, actor.with(tc.headers...)); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}

	// Whom the actor plays has rights of their own, and the actor's are gone meanwhile.
	d.bind(t, "masks", "bob", "ClusterRole", "view", "bob")
	d.bind(t, "masks", "actor", "ClusterRole", "edit", "actor")
	bob := actor.with("Impersonate-User", "bob")
	const maps = "/api/v1/namespaces/masks/configmaps"
	d.wants(t, "200", bob, "GET "+maps, nil)
	d.wants(t, "201", actor, "POST "+maps, `{"metadata":{"name":"a"}}`)
	d.wants(t, `403 Forbidden: configmaps is forbidden: User "bob" cannot create resource "configmaps" in API group "" in the namespace "masks"`,
		bob, "POST "+maps, `{"metadata":{"name":"b"}}`)
	// A mask on a mask: the second header is not obeyed.
	if got := d.who(t, bob.with("Impersonate-User", "root")); !strings.HasPrefix(got, `{"username":"bob"`) {
		t.Errorf("two users: %s", got)
	}
	// The administrator may play anybody, and loses the administrator's rights.
	root := d.admin.with("Impersonate-User", "carol", "Impersonate-Group", "system:masters")
	d.wants(t, "200", root, "GET /api/v1/secrets", nil)
	d.wants(t, `403 Forbidden: secrets is forbidden: User "carol" cannot list resource "secrets" in API group "" at the cluster scope`,
		d.admin.with("Impersonate-User", "carol"), "GET /api/v1/secrets", nil)
}
