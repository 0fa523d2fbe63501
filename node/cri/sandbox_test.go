package cri

import "testing"

func TestNamespacePath(t *testing.T) {
	tests := []struct{ name, info, want string }{
		{"named", `{"pid":7,"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/cni-1"}]}}}`, "/var/run/netns/cni-1"},
		{"of the process", `{"pid":7,"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}`, "/proc/7/ns/net"},
		{"none", `{}`, ""},
		{"not told", ``, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := namespacePath(test.info)
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
