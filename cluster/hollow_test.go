package cluster

import (
	"strings"
	"testing"
)

// No address of a hollow node is asked for anything: in the machine's network it would be somebody else's.
func TestDialReal(t *testing.T) {
	for _, i := range []int{0, 9999} {
		if pods := hollowPods(i); !hollowRange.Contains(pods.Addr()) || !hollowRange.Contains(nth(pods, 255)) {
			t.Errorf("node %d has pods at %v", i, pods)
		}
	}
	for _, address := range []string{"100.64.0.1:10250", "100.103.15.9:80"} {
		if _, err := dialReal(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), "hollow") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := dialReal(t.Context(), "tcp", "127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "hollow") {
		t.Errorf("127.0.0.1: %v", err)
	}
}
