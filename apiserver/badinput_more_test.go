package apiserver

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// badPatches are patches that cannot be read, do not apply, or make something else of an object than it may be.
func badPatches() []badInput {
	patch := func(name, contentType, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: "patch: " + name, method: "PATCH", path: configMaps + "/cm", contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	with := func(query string, in badInput) badInput {
		in.path += query
		return in
	}
	const unprocessed = "the server rejected our request due to an error in our request"
	var doubling strings.Builder
	doubling.WriteString(`[{"op":"test","path":"/data/k","value":"v"}`)
	for i := range 60 {
		fmt.Fprintf(&doubling, `,{"op":"copy","from":"/data","path":"/data/c%d"}`, i)
	}
	doubling.WriteString("]")
	return []badInput{
		patch("JSON, no list", jsonPatch, `{}`, 400, bad, "cannot unmarshal object"),
		patch("JSON, cut", jsonPatch, `[{"op":`, 400, bad, "unexpected end of JSON input"),
		patch("JSON, unknown operation", jsonPatch, `[{"op":"frob","path":"/data"}]`, 422, notValid, unprocessed),
		patch("JSON, no path", jsonPatch, `[{"op":"remove"}]`, 422, notValid, unprocessed),
		patch("JSON, nothing to remove", jsonPatch, `[{"op":"remove","path":"/data/none"}]`, 422, notValid, unprocessed),
		patch("JSON, nothing to replace", jsonPatch, `[{"op":"replace","path":"/spec/x","value":1}]`, 422, notValid, unprocessed),
		patch("JSON, test fails", jsonPatch, `[{"op":"test","path":"/data/k","value":"w"},{"op":"remove","path":"/data"}]`, 422, notValid, unprocessed),
		patch("JSON, whole object", jsonPatch, `[{"op":"replace","path":"","value":null}]`, 422, notValid, unprocessed),
		patch("JSON, bad index", jsonPatch, `[{"op":"add","path":"/metadata/managedFields/99","value":{}}]`, 422, notValid, unprocessed),
		patch("JSON, copies of copies", jsonPatch, doubling.String(), 422, notValid, unprocessed),
		patch("JSON, too many operations", jsonPatch, `[`+strings.Repeat(`{"op":"test","path":"/data/k","value":"v"},`, 10000)+`{"op":"remove","path":"/data"}]`,
			413, metav1.StatusReasonRequestEntityTooLarge, "The allowed maximum operations in a JSON patch is 10000, got 10001"),
		patch("JSON, wrong type", jsonPatch, `[{"op":"replace","path":"/data/k","value":1}]`, 422, notValid, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
		patch("merge, list", mergePatch, `[]`, 400, bad, "error decoding patch: "),
		patch("merge, text", mergePatch, `"x"`, 400, bad, "error decoding patch: "),
		patch("merge, null", mergePatch, `null`, 400, bad, "error decoding patch: "),
		patch("merge, nothing", mergePatch, ``, 400, bad, "error decoding patch: "),
		patch("merge, wrong type", mergePatch, `{"data":{"k":1}}`, 422, notValid, `"" is invalid: patch: Invalid value: "{`),
		patch("merge, text for a map", mergePatch, `{"data":"x"}`, 422, notValid, "cannot unmarshal string into Go struct field ConfigMap.data"),
		patch("merge, invalid UTF-8", mergePatch, "{\"data\":{\"k\":\"\xff\"}}", 400, bad, ""),
		patch("merge, deep", mergePatch, `{"data":`+strings.Repeat(`{"a":`, 20000)+`1`+strings.Repeat(`}`, 20001), 400, bad, "exceeded max depth"),
		patch("merge, another name", mergePatch, `{"metadata":{"name":"other"}}`, 400, bad, "the name of the object (other) does not match the name on the URL (cm)"),
		patch("merge, no name", mergePatch, `{"metadata":{"name":null}}`, 400, bad, "the name of the object (cm based on URL) was undeterminable: name must be provided"),
		patch("merge, another namespace", mergePatch, `{"metadata":{"namespace":"other"}}`, 400, bad, "the namespace of the object (other) does not match the namespace on the request (default)"),
		patch("merge, another kind", mergePatch, `{"kind":"Secret"}`, 400, bad, `Secret in version "v1" cannot be handled as a ConfigMap`),
		patch("merge, another uid", mergePatch, `{"metadata":{"uid":"other"}}`, 422, notValid, `metadata.uid: Invalid value: "other": field is immutable`),
		patch("merge, an old version", mergePatch, `{"metadata":{"resourceVersion":"1"},"data":{"k":"w"}}`, 409, conflicts, "the object has been modified"),
		patch("merge, bad label", mergePatch, `{"metadata":{"labels":{"a b":"c"}}}`, 422, notValid, `metadata.labels: Invalid value: "a b"`),
		with("?fieldValidation=Strict", patch("merge, unknown field", mergePatch, `{"foo":1}`, 400, bad, `strict decoding error: unknown field "foo"`)),
		with("?fieldValidation=Strict", patch("merge, duplicate field", mergePatch, `{"data":{"k":"a","k":"b"}}`, 400, bad, `strict decoding error: duplicate field "data.k"`)),
		with("?fieldValidation=Strict", patch("strategic, duplicate field", strategicPatch, `{"data":{"k":"a"},"data":{"k":"b"}}`, 400, bad, `strict decoding error: duplicate field "data"`)),
		with("?fieldValidation=Strict", patch("JSON, unknown field", jsonPatch, `[{"op":"add","path":"/data/x","value":"y","foo":1}]`, 400, bad, `json patch unknown field "[0].foo"`)),
		patch("strategic, list", strategicPatch, `[]`, 400, bad, "error decoding patch: "),
		patch("strategic, wrong type", strategicPatch, `{"data":{"k":{"x":1}}}`, 422, notValid, `"" is invalid: patch: Invalid value: "map[data:map[k:map[x:1]]]"`),
		patch("strategic, unknown directive", strategicPatch, `{"data":{"$patch":"frob"}}`, 400, bad, ""),
		{name: "patch: strategic, item without a key", method: "PATCH", path: deployments + "/d", contentType: strategicPatch,
			body: `{"spec":{"template":{"spec":{"containers":[{"image":"j"}]}}}}`, code: 400, reason: bad, message: "does not contain declared merge key: name"},
		with("/status", badInput{name: "patch: status that is not there", method: "PATCH", path: deployments + "/nothing", contentType: mergePatch, body: `{"status":{}}`,
			code: 404, reason: missing, message: `deployments.apps "nothing" not found`}),
		{name: "patch: nothing there", method: "PATCH", path: configMaps + "/nothing", contentType: mergePatch, body: `{}`, code: 404, reason: missing, message: `configmaps "nothing" not found`},
		patch("too large", mergePatch, strings.Repeat(" ", maxBody+1), 413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"),

		patch("apply, no manager", applyPatch, "apiVersion: v1\nkind: ConfigMap\n", 422, notValid, "fieldManager: Required value: is required for apply patch"),
		with("?fieldManager=m", patch("apply, syntax", applyPatch, "{", 400, bad, "error decoding YAML: ")),
		with("?fieldManager=m", patch("apply, text", applyPatch, "hello", 400, bad, "error decoding YAML: ")),
		with("?fieldManager=m", patch("apply, nothing", applyPatch, "", 400, bad, "")),
		with("?fieldManager=m", patch("apply, no version", applyPatch, "kind: ConfigMap\n", 400, bad, "Incorrect version specified in apply patch. Specified patch version: , expected: v1")),
		with("?fieldManager=m", patch("apply, no kind", applyPatch, "apiVersion: v1\n", 400, bad, "")),
		with("?fieldManager=m", patch("apply, other kind", applyPatch, "apiVersion: v1\nkind: Secret\n", 400, bad, "cannot be handled as a ConfigMap")),
		with("?fieldManager=m", patch("apply, other name", applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n", 400, bad,
			"the name of the object (other) does not match the name on the URL (cm)")),
		with("?fieldManager=m", patch("apply, managed fields", applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, managedFields: [{manager: m}]}\n", 400, bad,
			"metadata.managedFields must be nil")),
		with("?fieldManager=m", patch("apply, wrong type", applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: {x: 1}}\n", 400, bad, "ConfigMap")),
		with("?fieldManager=m", patch("apply, others' field", applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: w}\n", 409, conflicts,
			`Apply failed with 1 conflict: conflict with "test" using v1`)),
		with("?fieldManager=m", patch("apply, an old version", applyPatch, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, resourceVersion: \"1\"}\n", 409, conflicts, "the object has been modified")),
		{name: "patch: apply, new without a name", method: "PATCH", path: configMaps + "/nothing?fieldManager=m", contentType: applyPatch, body: "apiVersion: v1\nkind: ConfigMap\n", code: 400, reason: bad,
			message: "the name of the object (nothing based on URL) was undeterminable: name must be provided"},
		{name: "patch: apply, new with a uid", method: "PATCH", path: configMaps + "/nothing?fieldManager=m", contentType: applyPatch,
			body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nothing, uid: abc}\n", code: 409, reason: conflicts,
			message: "uid mismatch: the provided object specified uid abc, and no existing object was found"},
		{name: "patch: apply to a status that is not there", method: "PATCH", path: deployments + "/nothing/status?fieldManager=m", contentType: applyPatch,
			body: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: nothing}\n", code: 404, reason: missing, message: `deployments.apps "nothing" not found`},
	}
}

// badDeletes are deletions with options that are wrong or do not fit.
func badDeletes() []badInput {
	remove := func(name, query, contentType, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: "delete: " + name, method: "DELETE", path: configMaps + "/cm" + query, contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	return []badInput{
		remove("policy", "?propagationPolicy=Never", "", "", 422, notValid, `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: `),
		remove("policy in the body", "", typeJSON, `{"propagationPolicy":"Never"}`, 422, notValid, `propagationPolicy: `),
		remove("policy and orphans", "", typeJSON, `{"propagationPolicy":"Orphan","orphanDependents":true}`, 422, notValid, "orphanDependents and deletionPropagation cannot be both set"),
		remove("grace", "?gracePeriodSeconds=long", "", "", 400, bad, "invalid syntax"),
		remove("grace in the body", "", typeJSON, `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":"x"}`, 400, bad, "cannot unmarshal string"),
		remove("cut body", "", typeJSON, `{"kind":"DeleteOptions"`, 400, bad, ""),
		remove("other kind", "", typeJSON, `{"apiVersion":"v1","kind":"ConfigMap"}`, 400, bad, "DeleteOptions"),
		remove("body of an unknown type", "", "text/plain", `{}`, 415, metav1.StatusReasonUnsupportedMediaType, "the body of the request was in an unknown format"),
		remove("cut protobuf", "", typeProtobuf, magic+"\x12\x05", 400, bad, ""),
		remove("uid", "", typeJSON, `{"preconditions":{"uid":"other"}}`, 409, conflicts, "Precondition failed: UID in precondition: other, UID in object meta: "),
		remove("version", "", typeJSON, `{"preconditions":{"resourceVersion":"1"}}`, 409, conflicts, "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: "),
		remove("dry run in the body", "", typeJSON, `{"dryRun":["Some"]}`, 422, notValid, "dryRun: Unsupported value: "),
		{name: "delete: nothing there", method: "DELETE", path: configMaps + "/nothing", code: 404, reason: missing, message: `configmaps "nothing" not found`},
		{name: "delete: namespace default", method: "DELETE", path: "/api/v1/namespaces/default", code: 403, reason: denied, message: `namespaces "default" is forbidden: this namespace may not be deleted`},
		{name: "delete: namespace that ends", method: "DELETE", path: "/api/v1/namespaces/ending", code: 409, reason: conflicts,
			message: "The system is ensuring all content is removed from this namespace."},
		{name: "delete: collection by a bad selector", method: "DELETE", path: configMaps + "?labelSelector=a+b", code: 400, reason: bad, message: "unable to parse requirement"},
		{name: "delete: collection by a bad field", method: "DELETE", path: configMaps + "?fieldSelector=x%3Dy", code: 400, reason: bad, message: "not a known field selector"},
		{name: "delete: collection with a bad policy", method: "DELETE", path: configMaps + "?propagationPolicy=Never", code: 422, reason: notValid, message: "propagationPolicy: "},
	}
}

// badSubresources are requests to subresources and reviews.
func badSubresources() []badInput {
	post := func(name, path, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "POST", path: path, contentType: typeJSON, body: body, code: code, reason: reason, message: message}
	}
	scale := func(name, method, path, contentType, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: "scale: " + name, method: method, path: path, contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	const accounts = namespaced + "/serviceaccounts"
	return []badInput{
		scale("negative", "PUT", deployments+"/d/scale", typeJSON, `{"metadata":{"name":"d"},"spec":{"replicas":-1}}`, 422, notValid,
			`Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`),
		scale("negative by a patch", "PATCH", deployments+"/d/scale", mergePatch, `{"spec":{"replicas":-1}}`, 422, notValid, "spec.replicas: Invalid value: -1"),
		scale("text", "PATCH", deployments+"/d/scale", mergePatch, `{"spec":{"replicas":"many"}}`, 422, notValid, "patch: Invalid value: "),
		scale("other name", "PUT", deployments+"/d/scale", typeJSON, `{"metadata":{"name":"e"},"spec":{"replicas":1}}`, 400, bad, "the name of the object (e) does not match the name on the URL (d)"),
		scale("other kind", "PUT", deployments+"/d/scale", typeJSON, deployment("d", "a", "a"), 400, bad, "cannot be handled as a Scale"),
		scale("old version", "PUT", deployments+"/d/scale", typeJSON, `{"metadata":{"name":"d","resourceVersion":"1"},"spec":{"replicas":1}}`, 409, conflicts, "the object has been modified"),
		scale("nothing there", "GET", deployments+"/nothing/scale", "", "", 404, missing, `deployments.apps "nothing" not found`),
		scale("unknown patch", "PATCH", deployments+"/d/scale", "text/plain", "", 415, metav1.StatusReasonUnsupportedMediaType, "unknown format"),
		scale("unknown field, strict", "PUT", deployments+"/d/scale?fieldValidation=Strict", typeJSON, `{"metadata":{"name":"d"},"spec":{"replica":1}}`, 400, bad, `unknown field "spec.replica"`),

		post("bind without a target", pods+"/p/binding", `{"metadata":{"name":"p"}}`, 422, notValid, "target.name: Required value"),
		post("bind to a pod", pods+"/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Pod","name":"x"}}`, 422, notValid, "target.kind"),
		post("bind twice", pods+"/bound/binding", `{"metadata":{"name":"bound"},"target":{"kind":"Node","name":"n2"}}`, 409, conflicts,
			`Operation cannot be fulfilled on pods/binding "bound": pod bound is already assigned to node "n1"`),
		post("bind what is not there", pods+"/nothing/binding", `{"metadata":{"name":"nothing"},"target":{"kind":"Node","name":"n1"}}`, 404, missing, `pods "nothing" not found`),
		post("bind another name", pods+"/p/binding", `{"metadata":{"name":"q"},"target":{"kind":"Node","name":"n1"}}`, 400, bad, "name in URL does not match name in Binding object"),
		post("evict what is not there", pods+"/nothing/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"nothing"}}`, 404, missing, `pods "nothing" not found`),
		post("evict another name", pods+"/p/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"q"}}`, 400, bad, "name in URL does not match name in Eviction object"),
		post("evict by another kind", pods+"/p/eviction", `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"}}`, 400, bad, "cannot be handled as a Eviction"),
		post("token that ends soon", accounts+"/default/token", `{"spec":{"expirationSeconds":10}}`, 422, notValid, "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes"),
		post("token that does not end", accounts+"/default/token", `{"spec":{"expirationSeconds":9999999999}}`, 422, notValid, "may not specify a duration larger than 2^32 seconds"),
		post("token of nobody", accounts+"/nobody/token", `{}`, 404, missing, `serviceaccounts "nobody" not found`),
		post("token bound to a thing", accounts+"/default/token", `{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Thing","name":"t"}}}`, 400, bad, "cannot bind token"),
		post("token bound to what is not there", accounts+"/default/token", `{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"nothing"}}}`, 404, missing, `pods "nothing" not found`),
		post("review of nothing", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{}}`, 422, notValid, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
		post("review of nobody", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"spec":{"resourceAttributes":{"verb":"get"}}}`, 422, notValid, "at least one of user or group must be specified"),

		{name: "exec on no node", method: "POST", path: pods + "/p/exec?command=ls&stdout=1", code: 400, reason: bad, message: "pod p does not have a host assigned"},
		{name: "exec in no pod", method: "POST", path: pods + "/nothing/exec?command=ls&stdout=1", code: 404, reason: missing, message: `pods "nothing" not found`},
		{name: "exec in no container", method: "POST", path: pods + "/bound/exec?command=ls&stdout=1&container=x", code: 400, reason: bad, message: "container x is not valid for pod bound"},
		{name: "exec of no command", method: "POST", path: pods + "/bound/exec?stdout=1", code: 400, reason: bad, message: "you must specify at least one command for the container"},
		{name: "log of no pod", method: "GET", path: pods + "/nothing/log", code: 404, reason: missing, message: `pods "nothing" not found`},
		{name: "log of no container", method: "GET", path: pods + "/p/log?container=x", code: 400, reason: bad, message: "container x is not valid for pod p"},
		{name: "log of a negative length", method: "GET", path: pods + "/p/log?tailLines=-1", code: 422, reason: notValid, message: `PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0`},
		{name: "log of no length", method: "GET", path: pods + "/p/log?limitBytes=0", code: 422, reason: notValid, message: "limitBytes: Invalid value: 0: must be greater than 0"},
		{name: "log since some time", method: "GET", path: pods + "/p/log?sinceSeconds=x", code: 400, reason: bad, message: "invalid syntax"},
		{name: "finalize another name", method: "PUT", path: "/api/v1/namespaces/ending/finalize", contentType: typeJSON, body: `{"metadata":{"name":"default"}}`, code: 400, reason: bad,
			message: "does not match the name on the URL (ending)"},
		{name: "finalize with a bad finalizer", method: "PUT", path: "/api/v1/namespaces/ending/finalize", contentType: typeJSON,
			body: `{"metadata":{"name":"ending"},"spec":{"finalizers":["a b"]}}`, code: 422, reason: notValid, message: "spec.finalizers[0]: Invalid value"},
		{name: "ephemeral container twice", method: "PATCH", path: pods + "/bound/ephemeralcontainers", contentType: strategicPatch,
			body: `{"spec":{"ephemeralContainers":[{"name":"c","image":"i"}]}}`, code: 422, reason: notValid, message: "spec.ephemeralContainers[0].name: Duplicate value"},
	}
}

// badSpecs are objects whose own fields are wrong, or may not change.
func badSpecs() []badInput {
	post := func(name, path, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "POST", path: path, contentType: typeJSON, body: body, code: code, reason: reason, message: message}
	}
	merge := func(name, path, body, message string) badInput {
		return badInput{name: name, method: "PATCH", path: path, contentType: mergePatch, body: body, code: 422, reason: notValid, message: message}
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
	return []badInput{
		post("pod: no containers", pods, `{"metadata":{"name":"new"},"spec":{}}`, 422, notValid, `Pod "new" is invalid: spec.containers: Required value`),
		post("pod: restart policy", pods, pod(`"restartPolicy":"Sometimes"`, ""), 422, notValid, `spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`),
		post("pod: quantity", pods, pod("", `"resources":{"limits":{"cpu":"lots"}}`), 400, bad, "quantities must match the regular expression"),
		post("pod: requests above limits", pods, pod("", `"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}`), 422, notValid,
			`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`),
		post("pod: port", pods, pod("", `"ports":[{"containerPort":70000}]`), 422, notValid, "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"),
		post("pod: mount of nothing", pods, pod("", `"volumeMounts":[{"name":"v","mountPath":"/v"}]`), 422, notValid, `spec.containers[0].volumeMounts[0].name: Not found: "v"`),
		post("pod: probe without a handler", pods, pod("", `"livenessProbe":{}`), 422, notValid, "spec.containers[0].livenessProbe: Required value: must specify a handler type"),
		post("pod: node selector", pods, pod(`"nodeSelector":{"a":"b c"}`, ""), 422, notValid, "spec.nodeSelector: Invalid value"),
		post("pod: account that is not there", pods, pod(`"serviceAccountName":"nobody"`, ""), 403, denied,
			`pods "new" is forbidden: error looking up service account default/nobody: serviceaccount "nobody" not found`),
		post("pod: priority class", pods, pod(`"priorityClassName":"none"`, ""), 403, denied, `pods "new" is forbidden: no PriorityClass with name none was found`),
		post("pod: runtime class", pods, pod(`"runtimeClassName":"none"`, ""), 403, denied, `pod rejected: RuntimeClass "none" not found`),
		merge("pod: another name of its container", pods+"/p", `{"spec":{"containers":[{"name":"d","image":"i"}]}}`, "pod updates may not change fields other than"),
		merge("pod: another node", pods+"/bound", `{"spec":{"nodeName":"n2"}}`, "pod updates may not change fields other than"),
		post("service: port of a node", services, `{"metadata":{"name":"new"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":80}]}}`, 422, notValid,
			"spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767"),
		post("service: address elsewhere", services, `{"metadata":{"name":"new"},"spec":{"clusterIP":"1.2.3.4","ports":[{"port":80}]}}`, 422, notValid, "failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is not in the valid range. The range of valid IPs is 10.96.0.0/16"),
		post("service: taken address", services, `{"metadata":{"name":"new"},"spec":{"clusterIP":"10.96.0.77","ports":[{"port":80}]}}`, 422, notValid, "provided IP is already allocated"),
		post("service: two families on a cluster of one", services, `{"metadata":{"name":"new"},"spec":{"ipFamilyPolicy":"RequireDualStack","ports":[{"port":80}]}}`, 422, notValid,
			`spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services`),
		post("long annotations", configMaps, `{"metadata":{"name":"new","annotations":{"a":"`+strings.Repeat("x", 256<<10)+`"}}}`, 422, notValid, "metadata.annotations: Too long: must have at most 262144 bytes"),
		post("service: no address", services, `{"metadata":{"name":"new"},"spec":{"clusterIP":"ten","ports":[{"port":80}]}}`, 422, notValid, "spec.clusterIPs[0]: Invalid value"),
		post("service: no ports", services, `{"metadata":{"name":"new"},"spec":{}}`, 422, notValid, "spec.ports: Required value"),
		post("service: name", services, `{"metadata":{"name":"1a"},"spec":{"ports":[{"port":80}]}}`, 422, notValid, "a DNS-1035 label must consist of"),
		merge("service: another address", services+"/s", `{"spec":{"clusterIP":"10.96.0.78","clusterIPs":["10.96.0.78"]}}`, "may not change once set"),
		post("deployment: selector", deployments, deployment("new", "a", "b"), 422, notValid, "`selector` does not match template `labels`"),
		post("deployment: no selector", deployments, `{"metadata":{"name":"new"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 422, notValid, "spec.selector: Required value"),
		merge("deployment: another selector", deployments+"/d", `{"spec":{"selector":{"matchLabels":{"app":"b"}},"template":{"metadata":{"labels":{"app":"b"}}}}}`, "field is immutable"),
		merge("secret: fixed", namespaced+"/secrets/fixed", `{"stringData":{"k":"w"}}`, "data: Forbidden: field is immutable when `immutable` is set"),
		post("secret: type without its data", namespaced+"/secrets", `{"metadata":{"name":"new"},"type":"kubernetes.io/tls"}`, 422, notValid, "data[tls.crt]: Required value"),
		post("config map: key", configMaps, `{"metadata":{"name":"new"},"data":{"a b":"c"}}`, 422, notValid, "data[a b]: Invalid value"),
		post("config map: large", configMaps, `{"metadata":{"name":"new"},"data":{"k":"`+strings.Repeat("x", 1<<20+1)+`"}}`, 422, notValid, "Too long"),
		post("role: no verbs", rbac+"/roles", `{"metadata":{"name":"new"},"rules":[{"apiGroups":[""],"resources":["pods"]}]}`, 422, notValid, "rules[0].verbs: Required value: verbs must contain at least one value"),
		merge("role binding: another role", rbac+"/rolebindings/rb", `{"roleRef":{"name":"edit"}}`, "roleRef: Invalid value"),
		post("cron job: schedule", "/apis/batch/v1/namespaces/default/cronjobs",
			`{"metadata":{"name":"new"},"spec":{"schedule":"often","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
			422, notValid, `spec.schedule: Invalid value: "often"`),
		post("job: restart policy", "/apis/batch/v1/namespaces/default/jobs", `{"metadata":{"name":"new"},"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
			422, notValid, `spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`),
		post("autoscaler: nothing", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"new"},"spec":{"maxReplicas":0,"scaleTargetRef":{"kind":"Deployment","name":"d"}}}`,
			422, notValid, "spec.maxReplicas: Invalid value: 0: must be greater than 0"),
		post("ingress: no rules", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", `{"metadata":{"name":"new"},"spec":{}}`, 422, notValid, "either `defaultBackend` or `rules` must be specified"),
		post("claim: quota", namespaced+"/persistentvolumeclaims", `{"metadata":{"name":"new"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
			403, denied, `persistentvolumeclaims "new" is forbidden: exceeded quota: q, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=0, limited: persistentvolumeclaims=0`),
		post("signing request: no PEM", "/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"metadata":{"name":"new"},"spec":{"request":"eA==","signerName":"a.io/b","usages":["client auth"]}}`,
			422, notValid, "PEM block type must be CERTIFICATE REQUEST"),
		post("namespace: name", "/api/v1/namespaces", `{"metadata":{"name":"a.b"}}`, 422, notValid, `Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": `),
	}
}
