package cgroup_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/node/cgroup"
)

// hierarchy makes folders with the files that the kernel would put there; it makes no new ones in later folders.
func hierarchy(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func newTree(t *testing.T, mount, root string) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.New(mount, root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Setup(); err != nil {
		t.Fatal(err)
	}
	return tree
}

func ensure(t *testing.T, tree *cgroup.Tree, uid types.UID, class corev1.PodQOSClass, s cgroup.Settings) string {
	t.Helper()
	path := tree.Path(uid, class)
	if err := tree.Ensure(path, s); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConversions(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, 1: 2, 100: 102, 1000: 1024, 1000000: 262144} {
		if got := cgroup.Shares(milli); got != want {
			t.Errorf("%dm are %d shares, want %d", milli, got, want)
		}
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 500: 50000, 2000: 200000} {
		if got := cgroup.Quota(milli); got != want {
			t.Errorf("%dm are a quota of %d, want %d", milli, got, want)
		}
	}
	for shares, want := range map[uint64]uint64{2: 1, 1024: 39, 262144: 10000} {
		if got := cgroup.Weight(shares); got != want {
			t.Errorf("%d shares are a weight of %d, want %d", shares, got, want)
		}
	}
}

func TestSeparateHierarchies(t *testing.T) {
	files := map[string]string{"cpuset/cpuset.cpus": "0-3", "cpuset/cpuset.mems": "0", "elsewhere/keep": ""}
	for _, controller := range []string{"cpu", "memory", "cpuset", "systemd"} {
		files[controller+"/cgroup.procs"] = ""
	}
	for _, dir := range []string{"", "/kubepods", "/kubepods/besteffort", "/kubepods/burstable", "/kubepods/podu1", "/kubepods/burstable/podu2", "/kubepods/burstable/podu3"} {
		files["cpu/proa/n1"+dir+"/cpu.shares"] = "0"
		files["cpu/proa/n1"+dir+"/cpu.cfs_quota_us"] = "0"
		files["cpu/proa/n1"+dir+"/cpu.cfs_period_us"] = "0"
		files["cpuset/proa"+"/cpuset.cpus"] = ""
		files["cpuset/proa/n1"+dir+"/cpuset.cpus"] = ""
		files["memory/proa/n1"+dir+"/memory.limit_in_bytes"] = "0"
	}
	mount := hierarchy(t, files)
	tree := newTree(t, mount, "/proa/n1")
	path := ensure(t, tree, "u1", corev1.PodQOSGuaranteed, cgroup.Settings{Shares: 512, Quota: 50000, Memory: 1 << 30})
	if want := "/proa/n1/kubepods/podu1"; path != want {
		t.Errorf("path is %s, want %s", path, want)
	}
	for file, want := range map[string]string{
		"cpu/proa/n1/kubepods/podu1/cpu.shares":                   "512",
		"cpu/proa/n1/kubepods/podu1/cpu.cfs_quota_us":             "50000",
		"cpu/proa/n1/kubepods/podu1/cpu.cfs_period_us":            "100000",
		"memory/proa/n1/kubepods/podu1/memory.limit_in_bytes":     "1073741824",
		"cpuset/proa/n1/kubepods/podu1/cpuset.cpus":               "0-3",
		"cpu/proa/n1/kubepods/besteffort/cpu.shares":              "2",
		"memory/proa/n1/kubepods/burstable/memory.limit_in_bytes": "0",
	} {
		if got := read(t, mount, file); got != want {
			t.Errorf("%s is %q, want %q", file, got, want)
		}
	}
	ensure(t, tree, "u2", corev1.PodQOSBurstable, cgroup.Settings{Shares: 1024})
	third := ensure(t, tree, "u3", corev1.PodQOSBurstable, cgroup.Settings{Shares: 2048})
	if got := read(t, mount, "cpu/proa/n1/kubepods/burstable/cpu.shares"); got != "3072" {
		t.Errorf("shares of burstable pods are %s, want 3072", got)
	}
	made, err := filepath.Glob(filepath.Join(mount, "*", third, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range made { // they do not stop the kernel
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Remove(third); err != nil {
		t.Fatal(err)
	}
	if got := read(t, mount, "cpu/proa/n1/kubepods/burstable/cpu.shares"); got != "1024" {
		t.Errorf("shares of the remaining burstable pod are %s, want 1024", got)
	}
	if _, err := os.Stat(filepath.Join(mount, "systemd/proa/n1/kubepods/podu1")); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(mount, "elsewhere")); len(entries) != 1 {
		t.Error("a folder that is no hierarchy was touched")
	}
}

// TestRemove uses plain folders: only the kernel removes cgroups with their files in them.
func TestRemove(t *testing.T) {
	mount := hierarchy(t, map[string]string{"cpu/cgroup.procs": "", "memory/cgroup.procs": ""})
	tree := newTree(t, mount, "/proa/n1")
	path := ensure(t, tree, "u1", corev1.PodQOSBestEffort, cgroup.Settings{})
	if err := os.Mkdir(filepath.Join(mount, "cpu", path, "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]types.UID{"u1"}, tree.Pods()); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := tree.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if got := tree.Pods(); len(got) > 0 {
		t.Errorf("pods are left: %v", got)
	}
	if _, err := os.Stat(filepath.Join(mount, "cpu/proa/n1/kubepods/besteffort")); err != nil {
		t.Error(err)
	}
}

func TestUnified(t *testing.T) {
	mount := hierarchy(t, map[string]string{
		"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "", "cgroup.procs": "",
		"proa/kubepods/burstable/podu1/cpu.weight": "", "proa/kubepods/burstable/podu1/cpu.max": "",
		"proa/kubepods/burstable/podu1/memory.max": "", "proa/kubepods/burstable/podu1/hugetlb.2MB.max": "",
		"proa/kubepods/burstable/cpu.weight": "",
	})
	tree := newTree(t, mount, "proa")
	path := ensure(t, tree, "u1", corev1.PodQOSBurstable, cgroup.Settings{
		Shares: 1024, Quota: 200000, Memory: 64 << 20, HugePages: map[string]int64{"2MB": 4 << 20},
	})
	got := map[string]string{"class": read(t, mount, path, "../cpu.weight")}
	for _, file := range []string{"cpu.weight", "cpu.max", "memory.max", "hugetlb.2MB.max"} {
		got[file] = read(t, mount, path, file)
	}
	want := map[string]string{
		"class": "39", "cpu.weight": "39", "cpu.max": "200000 100000", "memory.max": "67108864", "hugetlb.2MB.max": "4194304",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := read(t, mount, "cgroup.subtree_control"); !strings.HasPrefix(got, "+") {
		t.Errorf("controllers are not passed on: %q", got)
	}
}

// TestClassWeight adds up pods' shares, which their weights have rounded, and what weights tell after a restart.
func TestClassWeight(t *testing.T) {
	const class = "proa/kubepods/burstable"
	files := map[string]string{"cgroup.controllers": "cpu", class + "/cpu.weight": ""}
	for i := range 10 {
		files[fmt.Sprintf("%s/podu%d/cpu.weight", class, i)] = ""
	}
	mount := hierarchy(t, files)
	tree := newTree(t, mount, "proa")
	for i := range 10 {
		ensure(t, tree, types.UID(fmt.Sprintf("u%d", i)), corev1.PodQOSBurstable, cgroup.Settings{Shares: 102})
	}
	if got, want := read(t, mount, class, "cpu.weight"), fmt.Sprint(cgroup.Weight(1020)); got != want {
		t.Errorf("ten pods of 102 shares have a class of weight %s, want %s", got, want)
	}
	for i := range 10 {
		if err := os.RemoveAll(filepath.Join(mount, class, fmt.Sprintf("podu%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	pod := filepath.Join(mount, class, "podu0")
	if err := os.Mkdir(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, weight := range []string{"1", "2", "20", "39", "100", "9999", "10000"} {
		if err := os.WriteFile(filepath.Join(pod, "cpu.weight"), []byte(weight), 0o644); err != nil {
			t.Fatal(err)
		}
		newTree(t, mount, "proa")
		if got := read(t, mount, class, "cpu.weight"); got != weight {
			t.Errorf("one pod of weight %s has a class of weight %s after a restart", weight, got)
		}
	}
}

// TestReportOnce has folders where files should be, which even root cannot write.
func TestReportOnce(t *testing.T) {
	mount := hierarchy(t, map[string]string{
		"cpu/cgroup.procs": "", "cpu/proa/kubepods/besteffort/podu1/cpu.shares/x": "", "cpu/proa/kubepods/besteffort/podu2/cpu.shares/x": "",
	})
	var log bytes.Buffer
	tree, err := cgroup.New(mount, "/proa", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range []types.UID{"u1", "u2", "u1"} {
		if err := tree.Ensure(tree.Path(uid, corev1.PodQOSBestEffort), cgroup.Settings{Shares: 2}); err != nil {
			t.Errorf("a limit that cannot be set stops the pod: %v", err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d reports, want 1:\n%s", n, log.String())
	}
}

// TestKernel makes a pod's cgroup for real.
func TestKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	root := fmt.Sprintf("/proa-test-%d", os.Getpid())
	tree, err := cgroup.New("", root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(root); err != nil {
			t.Error(err)
		}
	})
	if err := tree.Setup(); err != nil {
		t.Fatal(err)
	}
	path := ensure(t, tree, "u1", corev1.PodQOSBurstable, cgroup.Settings{Shares: 512, Memory: 64 << 20})
	if tree.Unified() {
		if got := read(t, "/sys/fs/cgroup", path, "memory.max"); got != "67108864" {
			t.Errorf("memory.max is %s", got)
		}
		return
	}
	if got := read(t, "/sys/fs/cgroup/cpu", path, "cpu.shares"); got != "512" {
		t.Errorf("cpu.shares is %s, want 512", got)
	}
	if got := read(t, "/sys/fs/cgroup/cpu", path, "../cpu.shares"); got != "512" {
		t.Errorf("cpu.shares of the class is %s, want 512", got)
	}
	if got := read(t, "/sys/fs/cgroup/cpuset", path, "cpuset.cpus"); got == "" {
		t.Error("cpuset.cpus is empty")
	}
}
