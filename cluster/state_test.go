package cluster

import (
	"errors"
	"os"
	"path/filepath"
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
		"no such port":         {NoNode: true, Port: 99999},
		"a negative port":      {NoNode: true, Port: -1},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHintsNameTheDirectory(t *testing.T) {
	t.Setenv("PROA_DATA_DIR", "/srv/a")
	for dir, want := range map[string]string{"/srv/a": "proa down", "/srv/b": "proa down --data-dir /srv/b"} {
		if have := command(dir, "down"); have != want {
			t.Errorf("in %s: %q, want %q", dir, have, want)
		}
	}
	if _, err := Running("/srv/b"); err == nil || !strings.HasSuffix(err.Error(), "proa up --data-dir /srv/b") {
		t.Errorf("not running: %v", err)
	}
}

// TestNeverJoined starts a server where an agent only tried to join.
func TestNeverJoined(t *testing.T) {
	dir := t.TempDir()
	if err := (&State{Server: "https://x", Nodes: []string{"a"}, Agent: true}).save(dir); err != nil {
		t.Fatal(err)
	}
	if err := dropNodes(t.Context(), Config{DataDir: dir, Nodes: 1}); err != nil {
		t.Errorf("a directory of an agent that never joined: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, identityFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dropNodes(t.Context(), Config{DataDir: dir, Nodes: 1}); err == nil {
		t.Error("a node's directory is accepted")
	}
}

func TestServerError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.log")
	if err := os.WriteFile(file, []byte("old\nproa: port in use\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status := errors.New("exit status 1")
	for offset, want := range map[int64]string{
		0:  "port in use",
		23: "the server ended (exit status 1) and logged nothing",
	} {
		if have := serverError(status, file, offset).Error(); have != want {
			t.Errorf("from %d: %q, want %q", offset, have, want)
		}
	}
	if err := os.WriteFile(file, []byte("panic: x\nexit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if have := serverError(status, file, 0).Error(); !strings.HasPrefix(have, "the server ended (exit status 1), see "+file) {
		t.Errorf("after a panic: %q", have)
	}
}

func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		config Config
		i      int
		name   string
		want   bool
	}{
		{Config{Nodes: 1, NodeName: "a"}, 0, "a", true},
		{Config{Nodes: 1, NodeName: "b"}, 0, "a", false},
		{Config{NoNode: true, NodeName: "a"}, 0, "a", false},
		{Config{Nodes: 2, NodeName: "a"}, 1, "a-2", true},
		{Config{Nodes: 2, NodeName: "b"}, 1, "a-2", false},
		{Config{Nodes: 1, NodeName: "a"}, 1, "a-2", false},
	} {
		if have := c.config.keeps(c.i, c.name); have != c.want {
			t.Errorf("%d nodes of %s: keeps %q as number %d: %v", c.config.Nodes, c.config.NodeName, c.name, c.i, have)
		}
	}
}
