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
	"k8s.io/apimachinery/pkg/api/resource"

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

func pod(requests, limits corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{}
	p.UID = "u1"
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}
	return p
}

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestPodSettings(t *testing.T) {
	sidecar := pod(list("cpu", "100m"), list("cpu", "200m", "memory", "64Mi"))
	sidecar.Spec.Containers = append(sidecar.Spec.Containers, corev1.Container{Name: "b"})
	tests := []struct {
		name string
		pod  *corev1.Pod
		want cgroup.Settings
	}{
		{"best effort", pod(nil, nil), cgroup.Settings{Shares: 2}},
		{"burstable without limits", pod(list("cpu", "250m"), nil), cgroup.Settings{Shares: 256}},
		{"guaranteed", pod(list("cpu", "1", "memory", "1Gi"), list("cpu", "1", "memory", "1Gi")),
			cgroup.Settings{Shares: 1024, Quota: 100000, Memory: 1 << 30}},
		{"one container without limits", sidecar, cgroup.Settings{Shares: 102}},
		{"small quota", pod(list("cpu", "1m"), list("cpu", "1m")), cgroup.Settings{Shares: 2, Quota: 1000}},
		{"huge pages", pod(list("cpu", "1", "hugepages-2Mi", "4Mi"), list("hugepages-2Mi", "4Mi")),
			cgroup.Settings{Shares: 1024, HugePages: map[string]int64{"2MB": 4 << 20}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, cgroup.PodSettings(test.pod)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSeparateHierarchies(t *testing.T) {
	files := map[string]string{"cpuset/cpuset.cpus": "0-3", "cpuset/cpuset.mems": "0", "elsewhere/keep": ""}
	for _, controller := range []string{"cpu", "memory", "cpuset", "systemd"} {
		files[controller+"/cgroup.procs"] = ""
	}
	for _, dir := range []string{"", "/kubepods", "/kubepods/besteffort", "/kubepods/burstable", "/kubepods/podu1"} {
		files["cpu/proa/n1"+dir+"/cpu.shares"] = "0"
		files["cpu/proa/n1"+dir+"/cpu.cfs_quota_us"] = "0"
		files["cpu/proa/n1"+dir+"/cpu.cfs_period_us"] = "0"
		files["cpuset/proa"+"/cpuset.cpus"] = ""
		files["cpuset/proa/n1"+dir+"/cpuset.cpus"] = ""
		files["memory/proa/n1"+dir+"/memory.limit_in_bytes"] = "0"
	}
	mount := hierarchy(t, files)
	m, err := cgroup.NewManager(cgroup.Config{Root: "/proa/n1", Mount: mount})
	if err != nil {
		t.Fatal(err)
	}
	p := pod(list("cpu", "500m", "memory", "1Gi"), list("cpu", "500m", "memory", "1Gi"))
	parent, err := m.EnsurePod(p)
	if err != nil {
		t.Fatal(err)
	}
	if want := "/proa/n1/kubepods/podu1"; parent != want {
		t.Errorf("parent is %s, want %s", parent, want)
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
	burstable := pod(list("cpu", "3"), nil)
	m.UpdateQoS([]*corev1.Pod{p, burstable, pod(nil, nil)})
	if got := read(t, mount, "cpu/proa/n1/kubepods/burstable/cpu.shares"); got != "3072" {
		t.Errorf("shares of burstable pods are %s, want 3072", got)
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
	m, err := cgroup.NewManager(cgroup.Config{Root: "/proa/n1", Mount: mount})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.EnsurePod(pod(nil, nil)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(mount, "cpu", m.Pod("u1", corev1.PodQOSBestEffort))
	if err := os.Mkdir(filepath.Join(path, "container"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.RemovePod("u1", corev1.PodQOSBestEffort); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", path, err)
	}
	if err := m.Cleanup(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"cpu/proa/n1", "memory/proa/n1"} {
		if _, err := os.Stat(filepath.Join(mount, dir)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	if _, err := os.Stat(filepath.Join(mount, "cpu/cgroup.procs")); err != nil {
		t.Error(err)
	}
}

func TestUnified(t *testing.T) {
	mount := hierarchy(t, map[string]string{
		"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "", "cgroup.procs": "",
		"proa/kubepods/burstable/podu1/cpu.weight": "", "proa/kubepods/burstable/podu1/cpu.max": "",
		"proa/kubepods/burstable/podu1/memory.max": "",
	})
	m, err := cgroup.NewManager(cgroup.Config{Root: "proa", Mount: mount})
	if err != nil {
		t.Fatal(err)
	}
	parent, err := m.EnsurePod(pod(list("cpu", "1"), list("cpu", "2", "memory", "64Mi")))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range []string{"cpu.weight", "cpu.max", "memory.max"} {
		got[file] = read(t, mount, parent, file)
	}
	want := map[string]string{"cpu.weight": "39", "cpu.max": "200000 100000", "memory.max": "67108864"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := read(t, mount, "cgroup.subtree_control"); !strings.HasPrefix(got, "+") {
		t.Errorf("controllers are not passed on: %q", got)
	}
}

// TestReportOnce has a folder where a file should be, which even root cannot write.
func TestReportOnce(t *testing.T) {
	mount := hierarchy(t, map[string]string{
		"cpu/cgroup.procs": "", "cpu/proa/kubepods/besteffort/cpu.shares": "", "cpu/proa/kubepods/besteffort/podu1/cpu.shares/x": "",
		"cpu/proa/kubepods/besteffort/podu2/cpu.shares/x": "",
	})
	var log bytes.Buffer
	m, err := cgroup.NewManager(cgroup.Config{Root: "/proa", Mount: mount, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	first, second := pod(nil, nil), pod(nil, nil)
	second.UID = "u2"
	for _, p := range []*corev1.Pod{first, second, first} {
		if _, err := m.EnsurePod(p); err != nil {
			t.Errorf("a limit that cannot be set stops the pod: %v", err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d reports, want 1:\n%s", n, log.String())
	}
}

func TestNil(t *testing.T) {
	var m *cgroup.Manager
	if parent, err := m.EnsurePod(pod(nil, nil)); parent != "" || err != nil {
		t.Errorf("got %q, %v", parent, err)
	}
	m.UpdateQoS(nil)
	if err := m.RemovePod("u1", corev1.PodQOSBurstable); err != nil {
		t.Error(err)
	}
	if err := m.Cleanup(); err != nil {
		t.Error(err)
	}
}

// TestKernel makes a pod's cgroup for real.
func TestKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	m, err := cgroup.NewManager(cgroup.Config{Root: fmt.Sprintf("/proa-test-%d", os.Getpid())})
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	parent, err := m.EnsurePod(pod(list("cpu", "500m"), list("cpu", "1", "memory", "64Mi")))
	if err != nil {
		t.Error(err)
	}
	if !m.Tree().Unified() {
		if got := read(t, "/sys/fs/cgroup/cpu", parent, "cpu.shares"); got != "512" {
			t.Errorf("cpu.shares is %s, want 512", got)
		}
		if got := read(t, "/sys/fs/cgroup/cpuset", parent, "cpuset.cpus"); got == "" {
			t.Error("cpuset.cpus is empty")
		}
	} else if got := read(t, "/sys/fs/cgroup", parent, "memory.max"); got != "67108864" {
		t.Errorf("memory.max is %s", got)
	}
	if err := m.RemovePod("u1", corev1.PodQOSBurstable); err != nil {
		t.Error(err)
	}
	if err := m.Cleanup(); err != nil {
		t.Error(err)
	}
}
