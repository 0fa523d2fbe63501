package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestOneServerPerDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Running(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("an empty directory: %v", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&State{PID: 7, Server: "https://x"}).save(dir); err != nil {
		t.Fatal(err)
	}
	if s, err := Running(dir); err != nil || s.PID != 7 {
		t.Errorf("a locked directory: %+v, %v", s, err)
	}
	if _, err := lockDir(dir); err == nil || !strings.Contains(err.Error(), "proa down") {
		t.Errorf("a second lock: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Running(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the server's end: %v", err)
	}
}

func TestConfigRefusals(t *testing.T) {
	for name, c := range map[string]Config{
		"nodes without a node": {NoNode: true, Nodes: 2},
		"too many":             {NoNode: true, HollowNodes: 1 << 20},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
