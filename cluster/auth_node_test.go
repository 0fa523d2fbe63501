package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// twoNodes makes two nodes and, in a namespace, a pod on each with a Secret and a ConfigMap; it returns the first's agent.
func (d *door) twoNodes(t *testing.T, namespace, one, two string) *sender {
	t.Helper()
	d.namespace(t, namespace)
	d.account(t, namespace, "robot")
	for _, name := range []string{one, two} {
		d.made(t, "/api/v1/nodes", `{"metadata":{"name":"`+name+`"}}`, nil)
		d.made(t, "/api/v1/namespaces/"+namespace+"/secrets", `{"metadata":{"name":"s-`+name+`"}}`, nil)
		d.made(t, "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"c-`+name+`"}}`, nil)
		d.pod(t, namespace, "p-"+name, name, fmt.Sprintf(`,"serviceAccountName":"robot","tolerations":[{"operator":"Exists"}],"volumes":[
			{"name":"s","secret":{"secretName":"s-%s"}},{"name":"c","configMap":{"name":"c-%[1]s"}}]`, name))
	}
	return d.user(t, "system:node:"+one, "system:nodes")
}

// A node reads what its pods need, and no more.
func testNodesRead(t *testing.T, d *door) {
	node := d.twoNodes(t, "needs", "n1", "n2")
	d.made(t, "/api/v1/namespaces/needs/secrets", `{"metadata":{"name":"spare"}}`, nil)
	const in = "/api/v1/namespaces/needs/"
	refused := func(name, verb, resource, why string) string {
		subject := resource
		if name != "" {
			subject += fmt.Sprintf(" %q", name)
		}
		return fmt.Sprintf(`403 Forbidden: %s is forbidden: User "system:node:n1" cannot %s resource %q in API group "" in the namespace "needs": %s`, subject, verb, resource, why)
	}
	const unrelated = "no relationship found between node 'n1' and this object"
	for _, tc := range []struct{ name, ask, body, want string }{
		{"own secret", "GET " + in + "secrets/s-n1", "", "200"},
		{"own secret, listed by name", "GET " + in + "secrets?fieldSelector=metadata.name%3Ds-n1", "", "200"},
		{"own configmap", "GET " + in + "configmaps/c-n1", "", "200"},
		{"foreign secret", "GET " + in + "secrets/s-n2", "", refused("s-n2", "get", "secrets", unrelated)},
		{"foreign configmap", "GET " + in + "configmaps/c-n2", "", refused("c-n2", "get", "configmaps", unrelated)},
		{"nobody's secret", "GET " + in + "secrets/spare", "", refused("spare", "get", "secrets", unrelated)},
		{"all secrets", "GET " + in + "secrets", "", refused("", "list", "secrets", "No Object name found")},
		{"write a secret", "PATCH " + in + "secrets/s-n1", `{"data":{}}`, refused("s-n1", "patch", "secrets", "can only read resources of this type")},
		{"delete a configmap", "DELETE " + in + "configmaps/c-n1", "", refused("c-n1", "delete", "configmaps", "can only read resources of this type")},
		{"pods", "GET /api/v1/pods", "", "200"},
		{"services", "GET /api/v1/services", "", "200"},
		{"deployments", "GET /apis/apps/v1/namespaces/needs/deployments", "",
			`403 Forbidden: deployments.apps is forbidden: User "system:node:n1" cannot list resource "deployments" in API group "apps" in the namespace "needs"`},
		{"token for its pod", "POST " + in + "serviceaccounts/robot/token", tokenFor(t, d, "needs", "p-n1"), "201"},
		{"token for a foreign pod", "POST " + in + "serviceaccounts/robot/token", tokenFor(t, d, "needs", "p-n2"),
			`403 Forbidden: serviceaccounts "robot" is forbidden: node requested token bound to a pod scheduled on a different node`},
		{"token for no pod", "POST " + in + "serviceaccounts/robot/token", `{"spec":{}}`,
			`403 Forbidden: serviceaccounts "robot" is forbidden: node requested token not bound to a pod`},
		{"token of an unused account", "POST " + in + "serviceaccounts/default/token", tokenFor(t, d, "needs", "p-n1"),
			`403 Forbidden: serviceaccounts "default" is forbidden: User "system:node:n1" cannot create resource "serviceaccounts/token" in API group "" in the namespace "needs": ` + unrelated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var body any
			if tc.body != "" {
				body = tc.body
			}
			d.wants(t, tc.want, node, tc.ask, body)
		})
	}
	// The name alone does not make a node, nor the group.
	for _, s := range []*sender{d.user(t, "system:node:n1"), d.user(t, "n1", "system:nodes")} {
		if got := d.outcome(t, s, "GET "+in+"secrets/s-n1", nil); !strings.HasPrefix(got, "403 ") {
			t.Errorf("half a node reads a secret: %s", got)
		}
	}
	// What a pod no longer needs is closed again.
	d.wants(t, "200", d.admin, "DELETE "+in+"pods/p-n1?gracePeriodSeconds=0", nil)
	d.wants(t, refused("s-n1", "get", "secrets", unrelated), node, "GET "+in+"secrets/s-n1", nil)
}

// uid of the object at path.
func (d *door) uid(t *testing.T, path string) string {
	t.Helper()
	var out metav1.PartialObjectMetadata
	_, answer := d.send(t, d.admin, "GET "+path, nil)
	if json.Unmarshal(answer, &out) != nil || out.UID == "" {
		t.Fatalf("%s: %s", path, answer)
	}
	return string(out.UID)
}

func tokenFor(t *testing.T, d *door, namespace, pod string) string {
	t.Helper()
	return fmt.Sprintf(`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`, pod, d.uid(t, "/api/v1/namespaces/"+namespace+"/pods/"+pod))
}

// A node writes its own Node, lease and pods.
func testNodesWrite(t *testing.T, d *door) {
	node := d.twoNodes(t, "writes", "m1", "m2")
	d.made(t, "/api/v1/namespaces/writes/secrets", `{"metadata":{"name":"spare"}}`, nil)
	d.made(t, "/api/v1/namespaces/writes/configmaps", `{"metadata":{"name":"spare"}}`, nil)
	owner := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"m1","uid":%q,"controller":true}]`, d.uid(t, "/api/v1/nodes/m1"))
	mirror := func(name, node, spec string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"annotations":{"kubernetes.io/config.mirror":"x"},%s},"spec":{"nodeName":%q,"containers":[{"name":"c","image":"i"%s}]}}`, name, owner, node, spec)
	}
	const pods, leases = "/api/v1/namespaces/writes/pods", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for _, tc := range []struct{ name, ask, body, want string }{
		{"own status", "PATCH /api/v1/nodes/m1/status", `{"status":{"capacity":{"cpu":"4"}}}`, "200"},
		{"foreign status", "PATCH /api/v1/nodes/m2/status", `{"status":{"capacity":{"cpu":"4"}}}`,
			`403 Forbidden: nodes "m2" is forbidden: node "m1" is not allowed to modify node "m2"`},
		{"own label", "PATCH /api/v1/nodes/m1", `{"metadata":{"labels":{"example.com/rack":"7","topology.kubernetes.io/zone":"a"}}}`, "200"},
		{"foreign label", "PATCH /api/v1/nodes/m2", `{"metadata":{"labels":{"a":"b"}}}`,
			`403 Forbidden: nodes "m2" is forbidden: node "m1" is not allowed to modify node "m2"`},
		{"restricted label", "PATCH /api/v1/nodes/m1", `{"metadata":{"labels":{"team.node-restriction.kubernetes.io/safe":"true"}}}`,
			`403 Forbidden: nodes "m1" is forbidden: is not allowed to modify labels: team.node-restriction.kubernetes.io/safe`},
		{"role label", "PATCH /api/v1/nodes/m1", `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
			`403 Forbidden: nodes "m1" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/control-plane`},
		{"restricted label by status", "PATCH /api/v1/nodes/m1/status", `{"metadata":{"labels":{"node-restriction.kubernetes.io/safe":"true"}}}`,
			`403 Forbidden: nodes "m1" is forbidden: is not allowed to modify labels: node-restriction.kubernetes.io/safe`},
		{"taints", "PATCH /api/v1/nodes/m1", `{"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]}}`, `403 Forbidden: nodes "m1" is forbidden: node "m1" is not allowed to modify taints`},
		{"delete a node", "DELETE /api/v1/nodes/m2", "",
			`403 Forbidden: nodes "m2" is forbidden: User "system:node:m1" cannot delete resource "nodes" in API group "" at the cluster scope`},
		{"make a node", "POST /api/v1/nodes", `{"metadata":{"name":"m3"}}`,
			`403 Forbidden: nodes "m3" is forbidden: node "m1" is not allowed to modify node "m3"`},

		{"own pod's status", "PATCH " + pods + "/p-m1/status", `{"status":{"message":"x"}}`, "200"},
		{"foreign pod's status", "PATCH " + pods + "/p-m2/status", `{"status":{"message":"x"}}`,
			`403 Forbidden: pods "p-m2" is forbidden: node "m1" can only update pod status for pods with spec.nodeName set to itself`},
		{"labels by status", "PATCH " + pods + "/p-m1/status", `{"metadata":{"labels":{"app":"web"}}}`,
			`403 Forbidden: pods "p-m1" is forbidden: node "m1" cannot update labels through pod status`},
		{"pod's spec", "PATCH " + pods + "/p-m1", `{"metadata":{"labels":{"app":"web"}}}`,
			`403 Forbidden: pods "p-m1" is forbidden: User "system:node:m1" cannot patch resource "pods" in API group "" in the namespace "writes"`},
		{"pod", "POST " + pods, `{"metadata":{"name":"x"},"spec":{"nodeName":"m1","containers":[{"name":"c","image":"i"}]}}`,
			`403 Forbidden: pods "x" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "m1" can only create mirror pods`},
		{"mirror pod", "POST " + pods, mirror("mirror", "m1", ""), "201"},
		{"mirror pod elsewhere", "POST " + pods, mirror("x", "m2", ""),
			`403 Forbidden: pods "x" is forbidden: node "m1" can only create pods with spec.nodeName set to itself`},
		{"foreign eviction", "POST " + pods + "/p-m2/eviction", `{"metadata":{"name":"p-m2"}}`,
			`403 Forbidden: pods "p-m2" is forbidden: node m1 can only evict pods with spec.nodeName set to itself`},
		{"delete a foreign pod", "DELETE " + pods + "/p-m2", "",
			`403 Forbidden: pods "p-m2" is forbidden: node "m1" can only delete pods with spec.nodeName set to itself`},
		{"delete an own pod", "DELETE " + pods + "/mirror?gracePeriodSeconds=0", "", "200"},

		{"own lease", "POST " + leases, `{"metadata":{"name":"m1"}}`, "201"},
		{"renew", "PATCH " + leases + "/m1", `{"spec":{"leaseDurationSeconds":40}}`, "200"},
		{"foreign lease", "POST " + leases, `{"metadata":{"name":"m2"}}`,
			`403 Forbidden: leases.coordination.k8s.io "m2" is forbidden: can only access node lease with the same name as the requesting node`},
		{"foreign lease's renewal", "PATCH " + leases + "/m2", `{"spec":{"leaseDurationSeconds":40}}`,
			`403 Forbidden: leases.coordination.k8s.io "m2" is forbidden: User "system:node:m1" cannot patch resource "leases" in API group "coordination.k8s.io" in the namespace "kube-node-lease": can only access node lease with the same name as the requesting node`},
		{"lease elsewhere", "POST /apis/coordination.k8s.io/v1/namespaces/writes/leases", `{"metadata":{"name":"m1"}}`,
			`403 Forbidden: leases.coordination.k8s.io is forbidden: User "system:node:m1" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "writes": can only access leases in the "kube-node-lease" system namespace`},
		{"own CSINode", "POST /apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"m1"},"spec":{"drivers":[]}}`, "201"},
		{"foreign CSINode", "POST /apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"m2"},"spec":{"drivers":[]}}`,
			`403 Forbidden: csinodes.storage.k8s.io "m2" is forbidden: can only access CSINode with the same name as the requesting node`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var body any
			if tc.body != "" {
				body = tc.body
			}
			d.wants(t, tc.want, node, tc.ask, body)
		})
	}
	// A node may write mirror pods, but not open secrets to itself by what it writes into them.
	for _, spec := range []string{
		`,"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"spare","key":"k"}}}]`,
		`,"envFrom":[{"secretRef":{"name":"spare"}},{"configMapRef":{"name":"spare"}}]`,
	} {
		d.outcome(t, node, "POST "+pods, mirror("greedy", "m1", spec))
		for _, path := range []string{"secrets/spare", "configmaps/spare"} {
			if got := d.outcome(t, node, "GET /api/v1/namespaces/writes/"+path, nil); !strings.HasPrefix(got, "403 ") {
				t.Errorf("a mirror pod with %s opens %s: %s", spec, path, got)
			}
		}
		d.send(t, d.admin, "DELETE "+pods+"/greedy?gracePeriodSeconds=0", nil)
	}
}
