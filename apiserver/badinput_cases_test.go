package apiserver

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	bad        = metav1.StatusReasonBadRequest
	notValid   = metav1.StatusReasonInvalid
	conflicts  = metav1.StatusReasonConflict
	missing    = metav1.StatusReasonNotFound
	denied     = metav1.StatusReasonForbidden
	notAllowed = metav1.StatusReasonMethodNotAllowed

	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"

	pods        = namespaced + "/pods"
	services    = namespaced + "/services"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
)

// badInputs are all requests that must be refused.
func badInputs() []badInput {
	return slices.Concat(badBodies(), badEncodings(), badMetadata(), badPaths(), badOptionsOf(), badPatches(), badDeletes(), badSubresources(), badSpecs())
}

// badBodies are bodies that are no objects of the kind.
func badBodies() []badInput {
	post := func(name, contentType, query, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "POST", path: configMaps + query, contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	return []badInput{
		post("no body", typeJSON, "", "", 400, bad, "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
		post("cut JSON", typeJSON, "", `{"metadata":{"na`, 400, bad, `(must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({"metadata":{"na)`),
		post("array", typeJSON, "", `[]`, 400, bad, "json parse error: json: cannot unmarshal array into Go value"),
		post("text", typeJSON, "", `hello`, 400, bad, "json parse error: invalid character 'h' looking for beginning of value (68656c6c6f)"),
		post("trailing text", typeJSON, "", `{"metadata":{"name":"new"}} x`, 400, bad, "invalid character 'x' after top-level value"),
		post("null", typeJSON, "", `null`, 422, notValid, `ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`),
		post("number for text", typeJSON, "", `{"metadata":{"name":"new"},"data":{"k":1}}`, 400, bad,
			`ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`),
		post("text for metadata", typeJSON, "", `{"metadata":"x"}`, 400, bad, "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type"),
		post("bad base64", typeJSON, "", `{"metadata":{"name":"new"},"binaryData":{"k":"***"}}`, 400, bad, "illegal base64 data"),
		post("bad time", typeJSON, "", `{"metadata":{"name":"new","creationTimestamp":"yesterday"}}`, 400, bad, `parsing time "yesterday"`),
		post("number too large", typeJSON, "", `{"metadata":{"name":"new","generation":99999999999999999999}}`, 400, bad, "cannot unmarshal number"),
		post("invalid UTF-8", typeJSON, "", "{\"metadata\":{\"name\":\"new\"},\"data\":{\"k\":\"\xff\"}}", 400, bad, "the object provided is unrecognized"),
		post("deep nesting", typeJSON, "", `{"metadata":{"name":"new"},"x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+"}", 400, bad, "exceeded max depth"),
		post("too large", typeJSON, "", `{"metadata":{"name":"new"},"data":{"k":"`+strings.Repeat("x", maxBody)+`"}}`, 413, metav1.StatusReasonRequestEntityTooLarge,
			"Request entity too large: limit is 3145728"),
		{name: "too large, in chunks", method: "POST", path: configMaps, contentType: typeJSON, body: strings.Repeat(" ", maxBody+1), chunked: true,
			code: 413, reason: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728"},
		post("other kind", typeJSON, "", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"}}`, 400, bad, `Pod in version "v1" cannot be handled as a ConfigMap`),
		post("other version", typeJSON, "", `{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"new"}}`, 400, bad, "does not match the expected API version (v1)"),
		post("kind is a number", typeJSON, "", `{"apiVersion":"v1","kind":1}`, 400, bad, "couldn't get version/kind; json parse error"),
		post("list", typeJSON, "", `{"apiVersion":"v1","kind":"List","items":[]}`, 400, bad, `List in version "v1" cannot be handled as a ConfigMap`),
		post("unknown field, strict", typeJSON, "?fieldValidation=Strict", `{"metadata":{"name":"new","nam":"x"},"dat":{}}`, 400, bad,
			`strict decoding error: unknown field "metadata.nam", unknown field "dat"`),
		post("duplicate field, strict", typeJSON, "?fieldValidation=Strict", `{"metadata":{"name":"new"},"data":{"k":"v","k":"w"},"data":{}}`, 400, bad,
			`strict decoding error: duplicate field "data.k", duplicate field "data"`),
		post("other case, strict", typeJSON, "?fieldValidation=Strict", `{"metadata":{"Name":"x","name":"new"}}`, 400, bad, `unknown field "metadata.Name"`),
	}
}

// badEncodings are bodies in other forms than JSON, and forms that nobody knows.
func badEncodings() []badInput {
	post := func(name, contentType, query, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "POST", path: configMaps + query, contentType: contentType, body: body, code: code, reason: reason, message: message}
	}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	whole, err := encodeWire(gvk, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Data: map[string]string{"k": strings.Repeat("v", 100)}})
	if err != nil {
		panic(err)
	}
	otherKind, err := encodeWire(corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{})
	if err != nil {
		panic(err)
	}
	unsupported := metav1.StatusReasonUnsupportedMediaType
	const accepted = "the body of the request was in an unknown format - accepted media types include: "
	return []badInput{
		post("YAML syntax", typeYAML, "", "metadata: {name: new\n", 400, bad, "the object provided is unrecognized (must be of type ConfigMap): yaml: line "),
		post("YAML tab", typeYAML, "", "metadata:\n\tname: new\n", 400, bad, "found character that cannot start any token"),
		post("YAML boolean for text", typeYAML, "", "metadata: {name: yes}\n", 400, bad, "cannot unmarshal bool into Go struct field"),
		post("YAML list", typeYAML, "", "- a\n- b\n", 400, bad, "cannot unmarshal array"),
		post("YAML duplicate, strict", typeYAML, "?fieldValidation=Strict", "metadata: {name: new}\ndata: {k: a, k: b}\n", 400, bad, `key "k" already set in map`),
		post("YAML unknown field, strict", typeYAML, "?fieldValidation=Strict", "metadata: {name: new}\nfoo: 1\n", 400, bad, `strict decoding error: unknown field "foo"`),
		post("YAML aliases", typeYAML, "", aliases(), 400, bad, "yaml: document contains excessive aliasing"),
		post("YAML nesting", typeYAML, "", "a: "+strings.Repeat("[", 20000), 400, bad, "the object provided is unrecognized"),
		post("YAML unknown anchor", typeYAML, "", "metadata: *who\n", 400, bad, "unknown anchor 'who' referenced"),
		post("YAML invalid UTF-8", typeYAML, "", "metadata: {name: \xff\xfe}\n", 400, bad, "the object provided is unrecognized"),
		post("protobuf without magic", typeProtobuf, "", `{"metadata":{"name":"new"}}`, 400, bad,
			"provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
		post("protobuf, empty", typeProtobuf, "", "", 400, bad, "the object provided is unrecognized (must be of type ConfigMap)"),
		post("protobuf, cut envelope", typeProtobuf, "", string(whole[:12]), 400, bad, "the object provided is unrecognized"),
		post("protobuf, cut object", typeProtobuf, "", string(whole[:len(whole)-60]), 400, bad, "unexpected EOF"),
		post("protobuf, broken object", typeProtobuf, "", string(envelope(gvk, []byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))), 400, bad, "cannot be handled as a ConfigMap"),
		post("protobuf, huge length", typeProtobuf, "", magic+"\x12\xff\xff\xff\xff\x0f", 400, bad, "the object provided is unrecognized"),
		post("protobuf, other kind", typeProtobuf, "", string(otherKind), 400, bad, `Pod in version "v1" cannot be handled as a ConfigMap`),
		post("JSON as protobuf type", "application/vnd.kubernetes.protobuf;charset=utf-8", "", "{}", 400, bad, "expected prefix"),
		post("text type", "text/plain", "", "{}", 415, unsupported, accepted+"application/json, application/yaml, application/vnd.kubernetes.protobuf"),
		post("form type", "application/x-www-form-urlencoded", "", "a=b", 415, unsupported, accepted),
		post("broken type", "application/json; =", "", "{}", 415, unsupported, accepted),
		post("patch type for a create", mergePatch, "", "{}", 415, unsupported, accepted),
		{name: "JSON type for a patch", method: "PATCH", path: configMaps + "/cm", contentType: typeJSON, body: "{}", code: 415, reason: unsupported,
			message: accepted + "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"},
		{name: "no type for a patch", method: "PATCH", path: configMaps + "/cm", body: "{}", code: 415, reason: unsupported, message: accepted},
		{name: "accepts text only", method: "GET", path: configMaps + "/cm", accept: "text/plain", code: 406, reason: metav1.StatusReasonNotAcceptable,
			message: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "accepts no list that is served", method: "GET", path: configMaps, accept: "application/xml, text/html;q=0.9", code: 406, reason: metav1.StatusReasonNotAcceptable},
		{name: "watches in YAML", method: "GET", path: configMaps + "?watch=1", accept: typeYAML, code: 406, reason: metav1.StatusReasonNotAcceptable},
		{name: "accepts an unknown view", method: "GET", path: configMaps, accept: "application/json;as=Tree;g=meta.k8s.io;v=v1", code: 406, reason: metav1.StatusReasonNotAcceptable},
		{name: "unknown includeObject", method: "GET", path: configMaps + "?includeObject=Half", accept: "application/json;as=Table;g=meta.k8s.io;v=v1", code: 400, reason: bad,
			message: "includeObject"},
		{name: "list as one partial object", method: "GET", path: configMaps, accept: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", code: 400, reason: bad,
			message: "you requested PartialObjectMetadata, but the requested object is a list"},
	}
}

// badMetadata are objects whose metadata is wrong, or not what the request says.
func badMetadata() []badInput {
	post := func(name, metadata, message string) badInput {
		return badInput{name: name, method: "POST", path: configMaps, contentType: typeJSON, body: `{"metadata":` + metadata + `}`, code: 422, reason: notValid, message: message}
	}
	put := func(name, path, body string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "PUT", path: path, contentType: typeJSON, body: body, code: code, reason: reason, message: message}
	}
	return []badInput{
		post("no name", `{}`, `ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`),
		post("upper case name", `{"name":"A_B"}`, `ConfigMap "A_B" is invalid: metadata.name: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case`),
		post("long name", `{"name":"`+strings.Repeat("a", 254)+`"}`, "must be no more than 253"),
		post("path in a name", `{"name":"a/b"}`, `metadata.name: Invalid value: "a/b"`),
		post("bad generateName", `{"generateName":"-A"}`, `metadata.generateName: Invalid value: "-A"`),
		post("bad label value", `{"name":"new","labels":{"a":"b c"}}`, `metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of`),
		post("bad label key", `{"name":"new","labels":{"a//b":""}}`, `metadata.labels: Invalid value: "a//b"`),
		post("long label", `{"name":"new","labels":{"a":"`+strings.Repeat("x", 64)+`"}}`, "must be no more than 63"),
		post("bad annotation key", `{"name":"new","annotations":{"a b":""}}`, `metadata.annotations: Invalid value: "a b"`),
		post("large annotations", `{"name":"new","annotations":{"a":"`+strings.Repeat("x", 262144)+`"}}`, "metadata.annotations: Too long"),
		post("owner without uid", `{"name":"new","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p"}]}`, "uid: Required value: must not be empty"),
		post("owner without kind", `{"name":"new","ownerReferences":[{"apiVersion":"v1","name":"p","uid":"u"}]}`, "kind: Required value: must not be empty"),
		post("owner without version", `{"name":"new","ownerReferences":[{"kind":"Pod","name":"p","uid":"u"}]}`, "apiVersion: Required value: must not be empty"),
		post("owner is an event", `{"name":"new","ownerReferences":[{"apiVersion":"v1","kind":"Event","name":"p","uid":"u"}]}`, "is disallowed from being an owner"),
		post("two controllers", `{"name":"new","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u","controller":true},{"apiVersion":"v1","kind":"Pod","name":"q","uid":"v","controller":true}]}`,
			"Only one reference can have Controller set to true"),
		post("bad finalizer", `{"name":"new","finalizers":["a b"]}`, `metadata.finalizers`),
		post("both deletion finalizers", `{"name":"new","finalizers":["orphan","foregroundDeletion"]}`, "finalizer orphan and foregroundDeletion cannot be both set"),
		{name: "resource version of a new object", method: "POST", path: configMaps, contentType: typeJSON, body: `{"metadata":{"name":"new","resourceVersion":"5"}}`,
			code: 400, reason: bad, message: "resourceVersion should not be set on objects to be created"},
		{name: "other namespace", method: "POST", path: configMaps, contentType: typeJSON, body: `{"metadata":{"name":"new","namespace":"other"}}`,
			code: 400, reason: bad, message: "the namespace of the provided object does not match the namespace sent on the request"},
		{name: "namespace of a cluster's object", method: "POST", path: "/api/v1/nodes", contentType: typeJSON, body: `{"metadata":{"name":"new","namespace":"default"}}`,
			code: 400, reason: bad, message: "the namespace of the provided object does not match the namespace sent on the request"},
		{name: "taken name", method: "POST", path: configMaps, contentType: typeJSON, body: `{"metadata":{"name":"cm"}}`,
			code: 409, reason: metav1.StatusReasonAlreadyExists, message: `configmaps "cm" already exists`},
		{name: "no namespace there", method: "POST", path: "/api/v1/namespaces/nowhere/configmaps", contentType: typeJSON, body: `{"metadata":{"name":"new"}}`,
			code: 404, reason: missing, message: `namespaces "nowhere" not found`},
		{name: "namespace that ends", method: "POST", path: "/api/v1/namespaces/ending/configmaps", contentType: typeJSON, body: `{"metadata":{"name":"new"}}`,
			code: 403, reason: denied, message: `configmaps "new" is forbidden: unable to create new content in namespace ending because it is being terminated`},
		put("update without a name", configMaps+"/cm", `{"data":{}}`, 400, bad, "the name of the object (cm based on URL) was undeterminable: name must be provided"),
		put("update of another name", configMaps+"/cm", `{"metadata":{"name":"other"}}`, 400, bad, "the name of the object (other) does not match the name on the URL (cm)"),
		put("update in another namespace", configMaps+"/cm", `{"metadata":{"name":"cm","namespace":"other"}}`, 400, bad,
			"the namespace of the object (other) does not match the namespace on the request (default)"),
		put("update of an old version", configMaps+"/cm", `{"metadata":{"name":"cm","resourceVersion":"1"}}`, 409, conflicts,
			`Operation cannot be fulfilled on configmaps "cm": the object has been modified; please apply your changes to the latest version and try again`),
		put("update of another uid", configMaps+"/cm", `{"metadata":{"name":"cm","uid":"other"}}`, 409, conflicts, "Precondition failed: UID in precondition: other, UID in object meta: "),
		put("update of what is not there", configMaps+"/nothing", `{"metadata":{"name":"nothing"}}`, 404, missing, `configmaps "nothing" not found`),
		put("update to another kind", configMaps+"/cm", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"cm"}}`, 400, bad, `Secret in version "v1" cannot be handled as a ConfigMap`),
		put("update with a bad label", configMaps+"/cm", `{"metadata":{"name":"cm","labels":{"a":"-"}}}`, 422, notValid, `ConfigMap "cm" is invalid: metadata.labels: Invalid value: "-"`),
	}
}

// badPaths are URLs that lead nowhere and methods that are not there.
func badPaths() []badInput {
	get := func(name, path string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "GET", path: path, code: code, reason: reason, message: message}
	}
	call := func(name, method, path string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: method, path: path, contentType: typeJSON, body: `{}`, code: code, reason: reason, message: message}
	}
	const nowhere, refused = "the server could not find the requested resource", "the server does not allow this method on the requested resource"
	return []badInput{
		get("unknown path", "/nowhere", 404, missing, nowhere),
		get("unknown group", "/apis/example.com/v1/things", 404, missing, nowhere),
		get("unknown version", "/apis/apps/v9/deployments", 404, missing, nowhere),
		get("unknown resource", namespaced+"/things", 404, missing, nowhere),
		get("unknown subresource", pods+"/p/thing", 404, missing, nowhere),
		get("status of what has none", configMaps+"/cm/status", 404, missing, nowhere),
		get("cluster's resource in a namespace", namespaced+"/nodes", 404, missing, nowhere),
		get("name without a namespace", "/api/v1/pods/p", 404, missing, nowhere),
		get("missing object", configMaps+"/nothing", 404, missing, `configmaps "nothing" not found`),
		get("double slash", "/api/v1//namespaces", 400, bad, "not in its plain form"),
		get("dots", namespaced+"/configmaps/..", 400, bad, "not in its plain form"),
		get("hidden dots", namespaced+"/configmaps/%2e%2e/secrets", 400, bad, "not in its plain form"),
		get("hidden slash", namespaced+"/configmaps/a%2fb", 400, bad, "not in its plain form"),
		get("hidden slash at the end", namespaced+"/configmaps%2Fcm", 400, bad, "not in its plain form"),
		get("zero byte", namespaced+"/configmaps/a%00b", 400, bad, "not in its plain form"),
		get("percent in a name", configMaps+"/a%25b", 400, bad, `Name parameter invalid: "a%b": may not contain '%'`),
		call("create of a name", "POST", configMaps+"/new", 405, notAllowed, refused),
		call("create in all namespaces", "POST", "/api/v1/configmaps", 405, notAllowed, refused),
		call("delete in all namespaces", "DELETE", "/api/v1/configmaps", 405, notAllowed, refused),
		call("update of a collection", "PUT", configMaps, 405, notAllowed, refused),
		call("patch of a collection", "PATCH", configMaps, 405, notAllowed, refused),
		call("delete of a status", "DELETE", deployments+"/d/status", 405, notAllowed, refused),
		call("create of a status", "POST", deployments+"/d/status", 405, notAllowed, refused),
		call("unknown method", "FROB", configMaps+"/cm", 405, notAllowed, refused),
		call("delete of all namespaces", "DELETE", "/api/v1/namespaces", 405, notAllowed, refused),
		call("list of reviews", "GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405, notAllowed, refused),
		call("update of a binding", "PUT", pods+"/p/binding", 405, notAllowed, refused),
	}
}

// badOptionsOf are wrong query parameters.
func badOptionsOf() []badInput {
	list := func(name, query string, code int, reason metav1.StatusReason, message string) badInput {
		return badInput{name: name, method: "GET", path: configMaps + "?" + query, code: code, reason: reason, message: message}
	}
	write := func(name, method, path, contentType, body, message string) badInput {
		return badInput{name: name, method: method, path: path, contentType: contentType, body: body, code: 422, reason: notValid, message: message}
	}
	one := `{"metadata":{"name":"new"}}`
	return []badInput{
		list("label selector", "labelSelector=a+b+c", 400, bad, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
		list("label selector that does not end", "labelSelector=a+in+(b", 400, bad, "unable to parse requirement"),
		list("label value", "labelSelector=a%3D%40", 400, bad, "unable to parse requirement"),
		list("label selector, long", "labelSelector=a%3D"+strings.Repeat("x", 64), 400, bad, "must be no more than 63"),
		list("label number", "labelSelector=a%3Ex", 400, bad, "for 'Gt', 'Lt' operators, the value must be an integer"),
		list("field selector", "fieldSelector=metadata.name", 400, bad, "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
		list("field selector of another kind", "fieldSelector=spec.nodeName%3Dx", 400, bad, `"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"`),
		{name: "field selector of a pod", method: "GET", path: pods + "?fieldSelector=spec.x%3Dy", code: 400, reason: bad, message: "field label not supported: spec.x"},
		list("limit", "limit=many", 400, bad, "invalid syntax"),
		list("timeout", "timeoutSeconds=soon", 400, bad, "invalid syntax"),
		list("timeout of a watch", "watch=1&timeoutSeconds=1.5", 400, bad, "invalid syntax"),
		list("continue", "continue=%25%25", 400, bad, "invalid continue token: continue key is not valid: illegal base64 data"),
		list("continue of nothing", "continue=e30", 400, bad, "continue key is not valid"),
		list("continue elsewhere", "continue="+continuation{Revision: 1, Start: "../../secrets/x"}.encode(), 400, bad, "continue key is not valid"),
		list("continue and version", "resourceVersion=5&continue="+continuation{Revision: 5, Start: "a\x00"}.encode(), 400, bad,
			"specifying resource version is not allowed when using continue"),
		list("version", "resourceVersion=new", 400, bad, "invalid resource version"),
		list("negative version", "resourceVersion=-1", 400, bad, "invalid resource version"),
		list("version match alone", "resourceVersionMatch=Exact", 422, notValid, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
		list("unknown version match", "resourceVersion=1&resourceVersionMatch=Close", 422, notValid, `resourceVersionMatch: Unsupported value: "Close"`),
		list("exactly any version", "resourceVersion=0&resourceVersionMatch=Exact", 422, notValid, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`),
		list("initial events of a list", "sendInitialEvents=true", 422, notValid, "sendInitialEvents is forbidden for list"),
		list("initial events of any version", "watch=1&sendInitialEvents=true", 422, notValid, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
		write("dry run, create", "POST", configMaps+"?dryRun=Some", typeJSON, one, `CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: `),
		write("dry run, update", "PUT", configMaps+"/cm?dryRun=Some", typeJSON, one, `UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: `),
		write("dry run, patch", "PATCH", configMaps+"/cm?dryRun=Some", mergePatch, "{}", `PatchOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: `),
		write("dry run, delete", "DELETE", configMaps+"/cm?dryRun=Some", "", "", `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: `),
		write("dry run, scale", "PUT", deployments+"/d/scale?dryRun=Some", typeJSON, one, "dryRun: Unsupported value: "),
		write("dry run, post", "POST", pods+"/p/eviction?dryRun=Some", typeJSON, one, "dryRun: Unsupported value: "),
		write("field validation, create", "POST", configMaps+"?fieldValidation=Maybe", typeJSON, one, `fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn"`),
		write("field validation, patch", "PATCH", configMaps+"/cm?fieldValidation=strict", mergePatch, "{}", `fieldValidation: Unsupported value: "strict"`),
		write("long manager", "POST", configMaps+"?fieldManager="+strings.Repeat("m", 129), typeJSON, one, "fieldManager: Too long"),
		write("unprintable manager", "POST", configMaps+"?fieldManager=a%07", typeJSON, one, "fieldManager: Invalid value: "),
		write("force without apply", "PATCH", configMaps+"/cm?force=true", mergePatch, "{}", "force: Forbidden: may not be specified for non-apply patch"),
	}
}
