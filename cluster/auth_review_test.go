package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

const reviews = "/apis/authorization.k8s.io/v1"

// decision is the status of an access review: allowed, denied or neither, and why.
func (d *door) decision(t *testing.T, s *sender, path, spec string) string {
	t.Helper()
	ask := "POST " + reviews + path
	code, answer := d.send(t, s, ask, `{"spec":`+spec+`}`)
	if code != 201 {
		return d.outcome(t, s, ask, `{"spec":`+spec+`}`)
	}
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(answer, &review); err != nil {
		t.Fatal(err)
	}
	word := "no opinion"
	switch {
	case review.Status.Allowed:
		word = "allowed"
	case review.Status.Denied:
		word = "denied"
	}
	return strings.TrimSuffix(word+": "+review.Status.Reason, ": ")
}

func testSelfReviews(t *testing.T, d *door) {
	d.namespace(t, "self")
	d.bind(t, "self", "look", "ClusterRole", "view", "group:lookers")
	jane := d.user(t, "jane", "lookers")
	for _, tc := range []struct{ name, spec, want string }{
		{"allowed", `{"resourceAttributes":{"namespace":"self","verb":"list","resource":"pods"}}`,
			`allowed: RBAC: allowed by RoleBinding "look/self" of ClusterRole "view" to Group "lookers"`},
		{"subresource", `{"resourceAttributes":{"namespace":"self","verb":"get","resource":"pods","subresource":"log","name":"p"}}`,
			`allowed: RBAC: allowed by RoleBinding "look/self" of ClusterRole "view" to Group "lookers"`},
		{"secrets", `{"resourceAttributes":{"namespace":"self","verb":"get","resource":"secrets"}}`, "no opinion"},
		{"another namespace", `{"resourceAttributes":{"namespace":"default","verb":"list","resource":"pods"}}`, "no opinion"},
		{"all namespaces", `{"resourceAttributes":{"verb":"list","resource":"pods"}}`, "no opinion"},
		{"everything", `{"resourceAttributes":{"verb":"*","group":"*","resource":"*"}}`, "no opinion"},
		{"path", `{"nonResourceAttributes":{"verb":"get","path":"/apis"}}`,
			`allowed: RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"`},
		{"closed path", `{"nonResourceAttributes":{"verb":"get","path":"/metrics"}}`, "no opinion"},
		{"neither", `{}`, `422 Invalid: SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := d.decision(t, jane, "/selfsubjectaccessreviews", tc.spec); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}

	var rules authorizationv1.SelfSubjectRulesReview
	_, answer := d.send(t, jane, "POST "+reviews+"/selfsubjectrulesreviews", `{"spec":{"namespace":"self"}}`)
	if err := json.Unmarshal(answer, &rules); err != nil {
		t.Fatal(err)
	}
	may := func(verb, group, resource string) bool {
		return slices.ContainsFunc(rules.Status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
		})
	}
	if rules.Status.Incomplete || !may("list", "apps", "deployments") || may("get", "", "secrets") || !may("create", "authorization.k8s.io", "selfsubjectrulesreviews") ||
		!slices.ContainsFunc(rules.Status.NonResourceRules, func(r authorizationv1.NonResourceRule) bool {
			return slices.Contains(r.NonResourceURLs, "/apis/*")
		}) {
		t.Errorf("jane's rules: %s", answer)
	}
	d.wants(t, "400 BadRequest: no namespace on request", jane, "POST "+reviews+"/selfsubjectrulesreviews", `{"spec":{}}`)
}

func testSubjectReviews(t *testing.T, d *door) {
	d.namespace(t, "subject")
	d.bind(t, "subject", "look", "ClusterRole", "view", "sue")
	d.bind(t, "subject", "judge", "ClusterRole", "admin", "judge")
	judge := d.user(t, "judge")
	for _, tc := range []struct{ name, spec, want string }{
		{"user", `{"user":"sue","resourceAttributes":{"namespace":"subject","verb":"get","resource":"pods"}}`,
			`allowed: RBAC: allowed by RoleBinding "look/subject" of ClusterRole "view" to User "sue"`},
		{"group", `{"groups":["system:masters"],"resourceAttributes":{"verb":"delete","resource":"nodes"}}`, "allowed"},
		{"service account", `{"user":"system:serviceaccount:kube-system:deployment-controller","resourceAttributes":{"namespace":"x","verb":"create","group":"apps","resource":"replicasets"}}`,
			`allowed: RBAC: allowed by ClusterRoleBinding "system:controller:deployment-controller" of ClusterRole "system:controller:deployment-controller" to ServiceAccount "deployment-controller/kube-system"`},
		{"node", `{"user":"system:node:ghost","groups":["system:nodes"],"resourceAttributes":{"namespace":"subject","verb":"get","resource":"secrets","name":"s"}}`,
			`no opinion: no relationship found between node 'ghost' and this object`},
		{"stranger", `{"user":"tom","resourceAttributes":{"namespace":"subject","verb":"get","resource":"pods"}}`, "no opinion"},
		{"nobody", `{"resourceAttributes":{"namespace":"subject","verb":"get","resource":"pods"}}`,
			`422 Invalid: SubjectAccessReview.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := d.decision(t, d.admin, "/subjectaccessreviews", tc.spec); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
	const ask = `{"user":"sue","resourceAttributes":{"namespace":"subject","verb":"get","resource":"pods"}}`
	if got, want := d.decision(t, judge, "/subjectaccessreviews", ask),
		`403 Forbidden: subjectaccessreviews.authorization.k8s.io is forbidden: User "judge" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope`; got != want {
		t.Errorf("review of the cluster:\n got %s\nwant %s", got, want)
	}
	// Who administers a namespace may ask about it.
	for _, tc := range []struct{ namespace, spec, want string }{
		{"subject", ask, `allowed: RBAC: allowed by RoleBinding "look/subject" of ClusterRole "view" to User "sue"`},
		{"subject", `{"user":"sue","resourceAttributes":{"verb":"get","resource":"pods"}}`,
			`allowed: RBAC: allowed by RoleBinding "look/subject" of ClusterRole "view" to User "sue"`},
		{"subject", `{"user":"sue","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}`,
			`400 BadRequest: spec.resourceAttributes.namespace must match namespace: subject`},
		{"default", ask, `403 Forbidden: localsubjectaccessreviews.authorization.k8s.io is forbidden: User "judge" cannot create resource "localsubjectaccessreviews" in API group "authorization.k8s.io" in the namespace "default"`},
	} {
		if got := d.decision(t, judge, "/namespaces/"+tc.namespace+"/localsubjectaccessreviews", tc.spec); got != tc.want {
			t.Errorf("%s %s:\n got %s\nwant %s", tc.namespace, tc.spec, got, tc.want)
		}
	}
}

func testTokenReviews(t *testing.T, d *door) {
	d.namespace(t, "shown")
	d.account(t, "shown", "robot")
	d.bind(t, "", "shown", "ClusterRole", "system:auth-delegator", "gate")
	const ask = "POST /apis/authentication.k8s.io/v1/tokenreviews"
	plain, vault := d.token(t, "shown", "robot", "{}"), d.token(t, "shown", "robot", `{"audiences":["vault"]}`)
	for _, tc := range []struct {
		name, token, audiences string
		good                   bool
		shown                  string
	}{
		{"own", plain, `[]`, true, "[]"},
		{"named", plain, `["https://kubernetes.default.svc.cluster.local","more"]`, true, "[https://kubernetes.default.svc.cluster.local]"},
		{"vault", vault, `["vault","more"]`, true, "[vault]"},
		{"vault for us", vault, `[]`, false, "[]"},
		{"plain for vault", plain, `["vault"]`, false, "[]"},
		{"rubbish", "rubbish", `[]`, false, "[]"},
		{"changed", plain[:len(plain)-4], `[]`, false, "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, answer := d.send(t, d.user(t, "gate"), ask, fmt.Sprintf(`{"spec":{"token":%q,"audiences":%s}}`, tc.token, tc.audiences))
			var review authenticationv1.TokenReview
			if err := json.Unmarshal(answer, &review); err != nil || code != 201 {
				t.Fatalf("%d %s: %v", code, answer, err)
			}
			s := review.Status
			if s.Authenticated != tc.good || tc.good != (s.User.Username == "system:serviceaccount:shown:robot") || tc.good != (s.Error == "") || fmt.Sprint(s.Audiences) != tc.shown {
				t.Errorf("status %+v, want authenticated = %v for %s", s, tc.good, tc.shown)
			}
		})
	}
	d.wants(t, "400 BadRequest: token is required for TokenReview in authentication", d.user(t, "gate"), ask, `{"spec":{}}`)
	d.wants(t, `403 Forbidden: tokenreviews.authentication.k8s.io is forbidden: User "jane" cannot create resource "tokenreviews" in API group "authentication.k8s.io" at the cluster scope`,
		d.user(t, "jane"), ask, `{"spec":{"token":"x"}}`)
}
