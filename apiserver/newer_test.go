package apiserver

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newerPod has fields of releases after the one that is served, at two depths.
const newerPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"hostnameOverride":"h","containers":[
	{"name":"c","image":"i"},{"name":"d","image":"i","restartPolicyRules":[{"action":"Restart"}]}]}}`

func TestNewerFields(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	f := newFixture(t)
	send := func(method, path, contentType, body string) (code int, warnings []string, answer string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header.Values("Warning"), string(data)
	}
	yaml := "apiVersion: v1\nkind: Pod\nmetadata: {name: yml}\nspec:\n  hostnameOverride: h\n  containers:\n  - {name: c, image: i}\n  - name: d\n    image: i\n    restartPolicyRules: [{action: Restart}]\n"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: corev1.PodSpec{
		HostnameOverride: new("hostnameOverride"), Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	wire, err := encodeWire(corev1.SchemeGroupVersion.WithKind("Pod"), pod)
	if err != nil {
		t.Fatal(err)
	}
	f.want(201, "POST", pods, typeJSON, strings.Replace(newerPod, `"name":"p"`, `"name":"live"`, 1))
	merge := `{"spec":{"hostnameOverride":"h"},"metadata":{"labels":{"x":"y"}}}`
	for _, test := range []struct {
		name, method, path, contentType, body string
		code                                  int
		warnings                              []string
		message                               string
	}{
		{"strict", "POST", pods + "?fieldValidation=Strict", typeJSON, newerPod, 400, nil,
			`strict decoding error: unknown field \"spec.hostnameOverride\", unknown field \"spec.containers[1].restartPolicyRules\"`},
		{"strict YAML", "POST", pods + "?fieldValidation=Strict", typeYAML, yaml, 400, nil, `unknown field \"spec.hostnameOverride\"`},
		{"warn", "POST", pods, typeJSON, newerPod, 201, []string{
			`299 - "unknown field \"spec.containers[1].restartPolicyRules\""`, `299 - "unknown field \"spec.hostnameOverride\""`}, ""},
		{"ignore", "POST", pods + "?fieldValidation=Ignore", typeYAML, yaml, 201, nil, ""},
		{"protobuf", "POST", pods + "?fieldValidation=Strict", typeProtobuf, string(wire), 201, nil, ""},
		{"merge patch, strict", "PATCH", pods + "/live?fieldValidation=Strict", "application/merge-patch+json", merge, 400, nil, `unknown field \"spec.hostnameOverride\"`},
		{"merge patch", "PATCH", pods + "/live", "application/merge-patch+json", merge[:strings.Index(merge, ",")] + "}", 200,
			[]string{`299 - "unknown field \"spec.hostnameOverride\""`}, ""},
		{"apply, strict", "PATCH", pods + "/new?fieldManager=m&fieldValidation=Strict", "application/apply-patch+yaml",
			strings.Replace(yaml, "name: yml", "name: new", 1), 400, nil, `unknown field \"spec.hostnameOverride\"`},
		{"apply", "PATCH", pods + "/new?fieldManager=m", "application/apply-patch+yaml", strings.Replace(yaml, "name: yml", "name: new", 1), 201, []string{
			`299 - "unknown field \"spec.containers[1].restartPolicyRules\""`, `299 - "unknown field \"spec.hostnameOverride\""`}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, warnings, answer := send(test.method, test.path, test.contentType, test.body)
			if code != test.code || !strings.Contains(answer, test.message) {
				t.Fatalf("got %d %s, want %d with %s", code, answer, test.code, test.message)
			}
			got := map[string]bool{}
			for _, w := range warnings {
				got[w] = true
			}
			for _, w := range test.warnings {
				if !got[w] {
					t.Errorf("no warning %s in %q", w, warnings)
				}
			}
			if len(got) != len(test.warnings) {
				t.Errorf("warnings %q, want %q", warnings, test.warnings)
			}
			if code < 300 && (strings.Contains(answer, "hostnameOverride") || strings.Contains(answer, "estartPolicyRules")) {
				t.Errorf("kept a newer field: %s", answer)
			}
		})
	}
}
