package scenarios

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
)

// things are what a cluster may have left in the machine: processes, mounts, network namespaces, interfaces, packet rules,
// cgroups.
type things map[string]bool

// found lists the things of this machine. base is the folder of everything that the scenarios start.
func found(base string) (things, error) {
	out := things{}
	for _, list := range []func(base string, add func(kind, name string)) error{processes, mounts, namespaces, interfaces, tables, cgroups} {
		if err := list(base, func(kind, name string) { out[kind+" "+name] = true }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// since lists what is there now and was not before.
func (t things) since(before things) []string {
	var out []string
	for thing := range t {
		if !before[thing] {
			out = append(out, thing)
		}
	}
	slices.Sort(out)
	return out
}

// processes of the cluster are told by their command line: the folder, or containerd's programs.
func processes(base string, add func(kind, name string)) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		line := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
		program, _, _ := strings.Cut(line, " ")
		if strings.Contains(line, base) || strings.HasPrefix(filepath.Base(program), "containerd") || program == "/pause" {
			add("process", filepath.Base(filepath.Dir(file))+" "+line)
		}
	}
	return nil
}

func mounts(base string, add func(kind, name string)) error {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && (strings.HasPrefix(fields[4], base) || strings.HasPrefix(fields[4], "/run/") || strings.HasPrefix(fields[4], "/var/")) {
			add("mount", fields[4])
		}
	}
	return lines.Err()
}

func namespaces(_ string, add func(kind, name string)) error {
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, e := range entries {
		add("network namespace", e.Name())
	}
	return nil
}

func interfaces(_ string, add func(kind, name string)) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		add(l.Type(), l.Attrs().Name)
	}
	return nil
}

func tables(_ string, add func(kind, name string)) error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	all, err := conn.ListTables()
	if err != nil {
		return err
	}
	for _, t := range all {
		add("nft table", fmt.Sprintf("%d %s", t.Family, t.Name))
	}
	return nil
}

// cgroups below which something of the cluster may be lie at the top of each hierarchy.
func cgroups(_ string, add func(kind, name string)) error {
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if info, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil && !info.IsDir() {
				add("cgroup", dir)
			}
		}
	}
	return nil
}

// leftovers fails when something is in the machine that was not there before the cluster. What is just ending gets a moment.
func (c *cluster) leftovers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: leftovers")
	}
	var left []string
	for range 50 {
		now, err := found(c.base)
		ts.Check(err)
		if left = now.since(c.before); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	ts.Fatalf("left behind:\n%s", strings.Join(left, "\n"))
}
