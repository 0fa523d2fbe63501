package connect

import (
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSplitName(t *testing.T) {
	for in, want := range map[string][3]string{
		"web":          {"http", "web", ""},
		"web:80":       {"http", "web", "80"},
		"https:web:":   {"https", "web", ""},
		":web:http":    {"http", "web", "http"},
		"https:web:ui": {"https", "web", "ui"},
	} {
		scheme, id, port, ok := splitName(in)
		if got := [3]string{scheme, id, port}; got != want || !ok {
			t.Errorf("%s: got %v %v, want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"ftp:web:", "a:b:c:d"} {
		if _, _, _, ok := splitName(in); ok {
			t.Errorf("%s is accepted", in)
		}
	}
}

func TestContainerChoice(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
	}}
	if got, err := container(pod, "i"); err != nil || got != "i" {
		t.Errorf("init container: %q %v", got, err)
	}
	for in, want := range map[string]string{
		"":  "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]",
		"x": "container x is not valid for pod p",
	} {
		if _, err := container(pod, in); err == nil || err.Error() != want {
			t.Errorf("container %q: %v, want %s", in, err, want)
		}
	}
	pod.Spec.Containers = pod.Spec.Containers[:1]
	if got, err := container(pod, ""); err != nil || got != "a" {
		t.Errorf("only container: %q %v", got, err)
	}
}

func TestLogOptions(t *testing.T) {
	good, errs, err := logOptions(url.Values{"follow": {"true"}, "tailLines": {"5"}, "timestamps": {"false"}})
	if err != nil || len(errs) > 0 || good.Encode() != "follow=true&tailLines=5" {
		t.Errorf("got %q %v %v", good.Encode(), errs, err)
	}
	if _, _, err := logOptions(url.Values{"tailLines": {"x"}}); err == nil {
		t.Error("tailLines=x is accepted")
	}
	if _, errs, _ := logOptions(url.Values{"tailLines": {"-1"}, "limitBytes": {"0"}, "sinceSeconds": {"0"}}); len(errs) != 3 {
		t.Errorf("got %v, want three errors", errs)
	}
}
