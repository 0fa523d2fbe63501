// Package cgroup keeps the tree of cgroups that pods live in: kubepods below a given root, below it a cgroup for each of
// the lesser classes of service, and one for each pod, named as tools that read them expect. It handles version 2 and
// the separate hierarchies of version 1, and touches nothing outside its root.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Limits of cpu.shares and the period of CPU quotas in microseconds.
const (
	MinShares = 2
	MaxShares = 262144
	Period    = 100000
)

// Tree of one node. Use New. It is safe for concurrent use.
type Tree struct {
	mount, root string
	unified     bool
	// hierarchies are the folders of version 1 below mount: controllers, and those without one that runtimes use too.
	hierarchies []string

	log *slog.Logger

	mu       sync.Mutex
	reported map[string]bool // files that could not be written
	// given are the shares of pods' cgroups by path, which a weight of version 2 tells only roughly.
	given map[string]uint64
}

// New returns the tree below root, a path below the mount point of cgroups (default /sys/fs/cgroup). Limits that the kernel
// does not take are logged once and done without: what a container is limited to is the runtime's to say.
func New(mount, root string, log *slog.Logger) (*Tree, error) {
	if mount == "" {
		mount = "/sys/fs/cgroup"
	}
	t := &Tree{mount: mount, root: filepath.Join("/", root), log: log, reported: map[string]bool{}, given: map[string]uint64{}}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		t.unified = true
		return t, nil
	}
	for _, name := range []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "blkio", "devices", "freezer", "hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "misc", "systemd", "unified"} {
		if _, err := os.Stat(filepath.Join(mount, name, "cgroup.procs")); err == nil {
			if resolved, err := filepath.EvalSymlinks(filepath.Join(mount, name)); err == nil && !slices.Contains(t.hierarchies, resolved) {
				t.hierarchies = append(t.hierarchies, resolved)
			}
		}
	}
	if len(t.hierarchies) == 0 {
		return nil, fmt.Errorf("no cgroups at %s", mount)
	}
	return t, nil
}

// Unified reports version 2.
func (t *Tree) Unified() bool { return t.unified }

// Setup makes the tree's fixed part.
func (t *Tree) Setup() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, class := range []string{"", "burstable", "besteffort"} {
		if err := t.create(filepath.Join(t.root, "kubepods", class)); err != nil {
			return err
		}
	}
	t.write(filepath.Join(t.root, "kubepods", "besteffort"), Settings{Shares: MinShares})
	t.balance()
	return nil
}

// Path of a pod's cgroup below the mount, the parent of its containers' cgroups.
func (t *Tree) Path(uid types.UID, class corev1.PodQOSClass) string {
	switch class {
	case corev1.PodQOSBurstable:
		return filepath.Join(t.root, "kubepods", "burstable", "pod"+string(uid))
	case corev1.PodQOSBestEffort:
		return filepath.Join(t.root, "kubepods", "besteffort", "pod"+string(uid))
	}
	return filepath.Join(t.root, "kubepods", "pod"+string(uid))
}

// Settings of a cgroup; zero values are left as they are.
type Settings struct {
	Shares uint64
	// Quota in microseconds per Period.
	Quota  int64
	Memory int64
	Pids   int64
	// HugePages are limits in bytes by page size as the kernel names it, such as "2MB".
	HugePages map[string]int64
}

// Ensure makes a pod's cgroup and sets it.
func (t *Tree) Ensure(path string, s Settings) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.create(path); err != nil {
		return err
	}
	t.write(path, s)
	if s.Shares > 0 {
		t.given[path] = s.Shares
	}
	if filepath.Dir(path) == t.burstable() {
		t.balance()
	}
	return nil
}

// Remove takes a pod's cgroup away, with the empty ones that its containers left below it.
func (t *Tree) Remove(path string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.given, path)
	var errs []error
	for _, dir := range t.dirs(path) {
		errs = append(errs, removeAll(dir))
	}
	if filepath.Dir(path) == t.burstable() {
		t.balance()
	}
	return errors.Join(errs...)
}

func (t *Tree) burstable() string { return filepath.Join(t.root, "kubepods", "burstable") }

// balance gives the burstable class the weight of its pods together, against that of each guaranteed pod.
func (t *Tree) balance() {
	var sum uint64
	for _, dir := range t.dirs(t.burstable()) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // not made yet
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "pod") {
				sum += t.shares(dir, e.Name())
			}
		}
	}
	t.write(t.burstable(), Settings{Shares: min(max(sum, MinShares), MaxShares)})
}

// shares that a burstable pod's cgroup has in the hierarchy of dir; 0 where that is not the CPU's.
func (t *Tree) shares(dir, pod string) uint64 {
	name := "cpu.shares"
	if t.unified {
		name = "cpu.weight"
		if given, ok := t.given[filepath.Join(t.burstable(), pod)]; ok {
			return given
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, pod, name))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n == 0 {
		return 0
	}
	if t.unified {
		return sharesOf(n)
	}
	return n
}

// Pods yields the UIDs of pods that have a cgroup.
func (t *Tree) Pods() []types.UID {
	var out []types.UID
	for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
		for _, dir := range t.dirs(filepath.Dir(t.Path("", class))) {
			entries, _ := os.ReadDir(dir) // nothing there is no pods
			for _, e := range entries {
				if uid, ok := strings.CutPrefix(e.Name(), "pod"); ok && e.IsDir() && !slices.Contains(out, types.UID(uid)) {
					out = append(out, types.UID(uid))
				}
			}
		}
	}
	return out
}

func (t *Tree) dirs(path string) []string {
	if t.unified {
		return []string{filepath.Join(t.mount, path)}
	}
	var out []string
	for _, h := range t.hierarchies {
		out = append(out, filepath.Join(h, path))
	}
	return out
}

func (t *Tree) create(path string) error {
	if !t.unified {
		for _, dir := range t.dirs(path) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
			inheritCPUSet(dir)
		}
		return nil
	}
	dir := t.mount
	for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
		// A child has the controllers that its parent passes on; the root's own processes do not stand in the way.
		enableControllers(dir)
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	enableControllers(dir)
	return nil
}

// enableControllers passes every controller on that can be; one that cannot (a real-time process in the way) is not
// there for the children, and the runtime says so when it is needed.
func enableControllers(dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(data)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

// inheritCPUSet fills in what a cpuset of version 1 needs before processes may join it.
func inheritCPUSet(dir string) {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(data)) != "" {
			continue
		}
		if parent, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name)); err == nil {
			if strings.TrimSpace(string(parent)) == "" {
				inheritCPUSet(filepath.Dir(dir))
				parent, _ = os.ReadFile(filepath.Join(filepath.Dir(dir), name)) // the write below tells
			}
			_ = os.WriteFile(filepath.Join(dir, name), parent, 0) // joining tells what is missing
		}
	}
}

func (t *Tree) write(path string, s Settings) {
	set := func(file, value string) {
		for _, dir := range t.dirs(path) {
			name := filepath.Join(dir, file)
			if _, err := os.Stat(name); err != nil {
				continue // the controller is not in this hierarchy
			}
			if err := os.WriteFile(name, []byte(value), 0); err != nil {
				if !t.reported[file] {
					t.reported[file] = true
					t.log.Warn("cgroup limit not set", "file", name, "err", err)
				}
			}
		}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	if t.unified {
		if s.Shares > 0 {
			set("cpu.weight", strconv.FormatUint(Weight(s.Shares), 10))
		}
		if s.Quota > 0 {
			set("cpu.max", number(s.Quota)+" "+number(Period))
		}
		if s.Memory > 0 {
			set("memory.max", number(s.Memory))
		}
	} else {
		if s.Shares > 0 {
			set("cpu.shares", strconv.FormatUint(s.Shares, 10))
		}
		if s.Quota > 0 {
			set("cpu.cfs_period_us", number(Period))
			set("cpu.cfs_quota_us", number(s.Quota))
		}
		if s.Memory > 0 {
			set("memory.limit_in_bytes", number(s.Memory))
		}
	}
	if s.Pids > 0 {
		set("pids.max", number(s.Pids))
	}
	for size, limit := range s.HugePages {
		if t.unified {
			set("hugetlb."+size+".max", number(limit))
		} else {
			set("hugetlb."+size+".limit_in_bytes", number(limit))
		}
	}
}

// Weight is cpu.weight of version 2 for cpu.shares of version 1.
func Weight(shares uint64) uint64 {
	return 1 + (max(min(shares, MaxShares), MinShares)-2)*9999/262142
}

// sharesOf is the middle of the shares that have the weight, but the least for the least weight: that of pods without a
// request.
func sharesOf(weight uint64) uint64 {
	if weight <= 1 {
		return MinShares
	}
	return min(MinShares+((weight-1)*262142+9998)/9999+12, MaxShares)
}

// Shares of a CPU request in thousandths.
func Shares(milli int64) uint64 {
	if milli == 0 {
		return MinShares
	}
	return uint64(max(min(milli*1024/1000, MaxShares), MinShares))
}

// Quota of a CPU limit in thousandths; 0 is none.
func Quota(milli int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*Period/1000, 1000)
}

func removeAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}
