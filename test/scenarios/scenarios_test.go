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
	c := start(t, "--nodes", "2")
	if images := imageArchive(); images != "" {
		c.proa(t, "image", "load", "--data-dir", c.dir, images)
		c.images = images
	} else {
		t.Log("no archive of test images: scripts with [!images] are skipped")
	}
	// The scripts of a folder run side by side, the folders one after the other.
	for _, group := range []string{"node", "restart", "nodes", "down"} {
		t.Run(group, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					c.dump(t)
				}
			})
			run(t, c, "testdata/"+group)
		})
	}
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
	binary, base, dir, kubeconfig string
	port                          int
	images                        string // archive that every node has loaded, "" for none
	before                        things // of the machine, for who runs as root
}

// userKubeconfig is what a user has before proa comes.
const userKubeconfig = `apiVersion: v1
kind: Config
current-context: work
clusters: [{name: work, cluster: {server: "https://work.example.com"}}]
users: [{name: me, user: {token: mine}}]
contexts: [{name: work, context: {cluster: work, user: me, namespace: team}}]
`

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
	c := &cluster{binary: binary, base: base, dir: filepath.Join(base, "d"), kubeconfig: filepath.Join(base, "kubeconfig"), port: freePort(t)}
	if err := os.WriteFile(c.kubeconfig, []byte(userKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if c.before, err = found(base); err != nil {
			t.Fatal(err)
		}
	}
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

// dump logs what a failure may come from.
func (c *cluster) dump(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, what := range []string{"get nodes,pods -A -o wide", "get events -A --sort-by=.metadata.creationTimestamp"} {
		cmd := exec.CommandContext(ctx, c.binary, append([]string{"kubectl", "--kubeconfig", filepath.Join(c.dir, "admin.kubeconfig")}, strings.Fields(what)...)...)
		out, err := cmd.CombinedOutput()
		t.Logf("kubectl %s (%v)\n%s", what, err, tail(out, 12000))
	}
	if log, err := os.ReadFile(filepath.Join(c.base, "agent.log")); err == nil {
		t.Logf("end of the agent's log:\n%s", tail(log, 8000))
	}
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
			env.Setenv("BASE", c.base)
			env.Setenv("IMAGES", c.images)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "images" {
				return c.images != "", nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"eventually": eventually,
			"leftovers":  c.leftovers,
			"machine":    c.machine,
		},
	})
}

// machine makes a second machine in a network namespace: machine NAME ADDRESS. A cable leads to this one, which routes what
// is sent to the address. When the script ends, so does what proa runs there in the folder $BASE/NAME.
func (c *cluster) machine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: machine NAME ADDRESS")
	}
	name, address := args[0], args[1]
	_ = ts.Exec("ip", "netns", "delete", name) // of a run that was interrupted
	ts.Check(ts.Exec("ip", "netns", "add", name))
	ts.Defer(func() {
		ts.Check(ts.Exec("nsenter", "--net=/run/netns/"+name, c.binary, "down", "--delete", "--data-dir", filepath.Join(c.base, name)))
		ts.Check(ts.Exec("ip", "netns", "delete", name))
	})
	for _, command := range []string{
		"ip link add cable-" + name + " type veth peer name eth0 netns " + name,
		"ip link set cable-" + name + " up",
		"ip route add " + address + "/32 dev cable-" + name,
		"ip -n " + name + " link set lo up",
		"ip -n " + name + " link set eth0 up",
		"ip -n " + name + " address add " + address + "/32 dev eth0",
		"ip -n " + name + " route add default dev eth0",
	} {
		words := strings.Fields(command)
		ts.Check(ts.Exec(words[0], words[1:]...))
	}
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
