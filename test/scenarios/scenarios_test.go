// Package scenarios drives the real binary from the outside with kubectl, by txtar scripts that read like a terminal. The
// folder's README says how to write one.
package scenarios

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestAPI runs the scripts that need no containers, on a cluster without a node.
func TestAPI(t *testing.T) {
	c := start(t, "--in-memory", "--no-node")
	run(t, c, "testdata/api")
}

// TestNode runs the scripts with real containers.
func TestNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("running containers needs root")
	}
	for _, program := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
	c := start(t)
	if images := imageArchive(); images != "" {
		c.proa(t, "image", "load", "--data-dir", c.dir, images)
		c.images = true
	} else {
		t.Log("no archive of test images: scripts with [!images] are skipped")
	}
	// The scripts of a folder run side by side; a group waits for its own. In the second the server is killed.
	t.Run("together", func(t *testing.T) { run(t, c, "testdata/node") })
	t.Run("killed", func(t *testing.T) { run(t, c, "testdata/restart") })
}

// imageArchive is the conformance kit's image archive, or "" when it has not been made.
func imageArchive() string {
	cache := os.Getenv("CONFORMANCE_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(base, "proa-conformance")
	}
	file := filepath.Join(cache, "images.tar")
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// cluster is a running proa.
type cluster struct {
	binary, dir, kubeconfig string
	port                    int
	images                  bool
}

// start builds nothing: the binary is bin/proa, which make builds first.
func start(t *testing.T, args ...string) *cluster {
	t.Helper()
	binary, err := filepath.Abs("../../bin/proa")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("bin/proa is missing; run: make build")
	}
	// A short path: unix sockets below it may have at most 107 characters.
	base, err := os.MkdirTemp("/tmp", "proa-scenario")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{binary: binary, dir: filepath.Join(base, "d"), kubeconfig: filepath.Join(base, "kubeconfig"), port: freePort(t)}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(c.dir, "server.log"))
			t.Logf("end of the server's log:\n%s", tail(log, 8000))
		}
		c.proa(t, "down", "--delete", "--data-dir", c.dir)
		os.RemoveAll(base)
	})
	c.proa(t, append([]string{"up", "--data-dir", c.dir, "--port", strconv.Itoa(c.port)}, args...)...)
	return c
}

func (c *cluster) proa(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("proa %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	t.Logf("proa %s\n%s", strings.Join(args, " "), out)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func run(t *testing.T, c *cluster, dir string) {
	// The released kubectl when there is one, else the built-in.
	bin := t.TempDir()
	kubectl, err := exec.LookPath("kubectl")
	if err == nil {
		err = os.Symlink(kubectl, filepath.Join(bin, "kubectl"))
	} else {
		err = os.WriteFile(filepath.Join(bin, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec %s kubectl \"$@\"\n", c.binary), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(c.binary, filepath.Join(bin, "proa")); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("KUBECONFIG", c.kubeconfig)
			env.Setenv("PROA_DATA_DIR", c.dir)
			env.Setenv("PORT", strconv.Itoa(c.port))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "images" {
				return c.images, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"eventually": eventually,
		},
	})
}

// eventually runs a command again until its output matches: eventually SECONDS REGEXP COMMAND...
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: eventually SECONDS REGEXP COMMAND...")
	}
	seconds, err := strconv.Atoi(args[0])
	ts.Check(err)
	pattern, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for {
		err := ts.Exec(args[2], args[3:]...)
		out := ts.ReadFile("stdout") + ts.ReadFile("stderr")
		if pattern.MatchString(out) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("after %d s still (%v):\n%s", seconds, err, out)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func tail(b []byte, n int) []byte {
	return b[max(0, len(b)-n):]
}
