package cluster

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClaimMachine lets two nodes want one machine, in a network namespace of the test's own.
func TestClaimMachine(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs the right to make a network namespace: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if owner := machineOwner(); owner != "" {
		t.Fatalf("an empty machine belongs to %s", owner)
	}
	if err := claimMachine(ctx, "/one"); err != nil {
		t.Fatal(err)
	}
	if owner := machineOwner(); owner != "/one" {
		t.Errorf("the machine belongs to %q, want /one", owner)
	}
	if err := claimMachine(ctx, "/two"); err == nil || !strings.Contains(err.Error(), "in /one") {
		t.Errorf("a second node: %v", err)
	}
	cancel()
	for deadline := time.Now().Add(10 * time.Second); machineOwner() != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the machine is still taken")
		}
	}
	if err := claimMachine(t.Context(), "/two"); err != nil {
		t.Errorf("after the first has gone: %v", err)
	}
}
