// Package stats measures what the node, its pods and their containers use: from the runtime, from cgroups of version 1 and
// 2, from /proc and from the network namespaces of pods. It measures when asked and never by itself.
package stats

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/internal/netns"
	"proa/node/runtime"
)

// sampleAge is how old a measurement may be to be answered again, so that several readers cost one.
const sampleAge = time.Second

// Config of a collector. NodeName, Runtime and Log are required.
type Config struct {
	NodeName string
	Runtime  runtime.Runtime
	Log      *slog.Logger
	// RootDir is on the file system that counts as the node's; default "/".
	RootDir string
	// CgroupMount is where cgroups are; default /sys/fs/cgroup. Cgroup is the one that counts as the node; default the
	// root of all.
	CgroupMount, Cgroup string
	// PodCgroup finds the cgroup of a pod below CgroupMount; without it a pod's numbers are the sum of its containers'.
	PodCgroup func(namespace, name, uid string) string
}

// Collector measures. Use New. It is safe for concurrent use.
type Collector struct {
	Config

	mu    sync.Mutex
	last  *Summary
	taken time.Time
	// before has the sample before, by what was measured, for rates.
	before map[string]cpuSample
}

type cpuSample struct {
	at    time.Time
	usage uint64
	rate  *uint64
}

// New returns a collector.
func New(config Config) *Collector {
	if config.RootDir == "" {
		config.RootDir = "/"
	}
	if config.CgroupMount == "" {
		config.CgroupMount = "/sys/fs/cgroup"
	}
	if config.Cgroup == "" {
		config.Cgroup = "/"
	}
	return &Collector{Config: config, before: map[string]cpuSample{}}
}

// Summary measures everything. The result is shared and must not be changed.
func (c *Collector) Summary(ctx context.Context) (*Summary, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.last != nil && now.Sub(c.taken) < sampleAge {
		return c.last, nil
	}
	pods, err := c.pods(ctx, now)
	if err != nil {
		return nil, err
	}
	c.last, c.taken = &Summary{Node: c.node(ctx, now), Pods: pods}, now
	for key, sample := range c.before {
		if now.Sub(sample.at) > 10*time.Minute {
			delete(c.before, key) // of something that is gone
		}
	}
	return c.last, nil
}

// node leaves out what cannot be read.
func (c *Collector) node(ctx context.Context, now time.Time) NodeStats {
	out := NodeStats{NodeName: c.NodeName, StartTime: bootTime(now)}
	if usage, err := ReadCgroup(c.CgroupMount, c.Cgroup); err != nil {
		c.Log.Debug("node's cgroup not read", "err", err)
	} else {
		out.CPU, out.Memory = c.cpu("node", now, usage.CPU), memory(now, usage)
	}
	if info, err := keyed("/proc/meminfo"); err == nil && out.Memory != nil {
		// Of the whole machine rather than of a cgroup without limit.
		out.Memory.AvailableBytes = new(less(info["MemTotal"]<<10, *out.Memory.WorkingSetBytes))
	}
	if interfaces, err := netns.Interfaces(""); err == nil {
		out.Network = network(now, interfaces, defaultInterface())
	}
	out.Fs = fileSystem(now, c.RootDir)
	if images, err := c.Runtime.ImageFsInfo(ctx); err == nil && len(images) > 0 {
		out.Runtime = &RuntimeStats{ImageFs: fileSystem(now, images[0].GetFsId().GetMountpoint())}
		if out.Runtime.ImageFs == nil {
			out.Runtime.ImageFs = fileSystem(now, c.RootDir)
		}
		if out.Runtime.ImageFs != nil {
			out.Runtime.ContainerFs = new(*out.Runtime.ImageFs)
			out.Runtime.ImageFs.UsedBytes = new(images[0].GetUsedBytes().GetValue())
			out.Runtime.ImageFs.InodesUsed = new(images[0].GetInodesUsed().GetValue())
		}
	}
	out.Rlimit = processes(now)
	return out
}

func (c *Collector) pods(ctx context.Context, now time.Time) ([]PodStats, error) {
	sandboxes, err := c.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes for statistics: %w", err)
	}
	containers, err := c.Runtime.ListContainers(ctx, &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return nil, fmt.Errorf("list containers for statistics: %w", err)
	}
	measured, err := c.Runtime.ListContainerStats(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list statistics of containers: %w", err)
	}
	byID := make(map[string]*cri.ContainerStats, len(measured))
	for _, one := range measured {
		byID[one.GetAttributes().GetId()] = one
	}
	bySandbox := map[string][]*cri.Container{}
	for _, container := range containers {
		bySandbox[container.PodSandboxId] = append(bySandbox[container.PodSandboxId], container)
	}
	out := make([]PodStats, 0, len(sandboxes))
	for _, sandbox := range sandboxes {
		meta := sandbox.GetMetadata()
		pod := PodStats{
			PodRef:     PodReference{Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid()},
			StartTime:  time.Unix(0, sandbox.CreatedAt),
			Containers: []ContainerStats{},
		}
		for _, container := range bySandbox[sandbox.Id] {
			pod.Containers = append(pod.Containers, c.container(now, container, byID[container.Id]))
		}
		slices.SortFunc(pod.Containers, func(a, b ContainerStats) int { return strings.Compare(a.Name, b.Name) })
		c.total(now, &pod)
		c.podNetwork(ctx, now, sandbox.Id, &pod)
		out = append(out, pod)
	}
	return out, nil
}

func (c *Collector) container(now time.Time, container *cri.Container, measured *cri.ContainerStats) ContainerStats {
	out := ContainerStats{Name: container.GetMetadata().GetName(), StartTime: time.Unix(0, container.CreatedAt)}
	if cpu := measured.GetCpu(); cpu.GetUsageCoreNanoSeconds() != nil {
		out.CPU = c.cpu(container.Id, at(cpu.Timestamp, now), cpu.UsageCoreNanoSeconds.Value)
	}
	if m := measured.GetMemory(); m.GetWorkingSetBytes() != nil {
		out.Memory = &MemoryStats{
			Time: at(m.Timestamp, now), WorkingSetBytes: new(m.WorkingSetBytes.Value),
			UsageBytes: value(m.UsageBytes), RSSBytes: value(m.RssBytes), AvailableBytes: value(m.AvailableBytes),
			PageFaults: value(m.PageFaults), MajorPageFaults: value(m.MajorPageFaults),
		}
	}
	if layer := measured.GetWritableLayer(); layer != nil {
		out.Rootfs = &FsStats{Time: at(layer.Timestamp, now), UsedBytes: value(layer.UsedBytes), InodesUsed: value(layer.InodesUsed)}
	}
	return out
}

// total measures a pod as a whole: by its cgroup, which includes the sandbox and what tmpfs holds, or by summing up.
func (c *Collector) total(now time.Time, pod *PodStats) {
	if c.PodCgroup != nil {
		if path := c.PodCgroup(pod.PodRef.Namespace, pod.PodRef.Name, pod.PodRef.UID); path != "" {
			if usage, err := ReadCgroup(c.CgroupMount, path); err == nil {
				pod.CPU, pod.Memory = c.cpu(pod.PodRef.UID, now, usage.CPU), memory(now, usage)
			}
		}
	}
	var used, cpu, workingSet uint64
	for _, container := range pod.Containers {
		if container.CPU != nil {
			cpu += *container.CPU.UsageCoreNanoSeconds
		}
		if container.Memory != nil {
			workingSet += *container.Memory.WorkingSetBytes
		}
		if container.Rootfs != nil && container.Rootfs.UsedBytes != nil {
			used += *container.Rootfs.UsedBytes
		}
	}
	if pod.CPU == nil && len(pod.Containers) > 0 {
		pod.CPU = c.cpu(pod.PodRef.UID, now, cpu)
		pod.Memory = &MemoryStats{Time: now, WorkingSetBytes: &workingSet}
	}
	pod.EphemeralStorage = &FsStats{Time: now, UsedBytes: &used}
}

// podNetwork reads the counters of a pod that has a network of its own.
func (c *Collector) podNetwork(ctx context.Context, now time.Time, sandbox string, pod *PodStats) {
	runtime, ok := c.Runtime.(interface {
		NetworkNamespace(ctx context.Context, sandbox string) (string, error)
	})
	if !ok {
		return
	}
	path, err := runtime.NetworkNamespace(ctx, sandbox)
	if err != nil || path == "" {
		return
	}
	interfaces, err := netns.Interfaces(path)
	if err != nil {
		c.Log.Debug("pod's network not measured", "pod", pod.PodRef.Namespace+"/"+pod.PodRef.Name, "err", err)
		return
	}
	pod.Network = network(now, interfaces, "eth0")
}

// cpu adds the rate since the sample before.
func (c *Collector) cpu(key string, now time.Time, usage uint64) *CPUStats {
	before, known := c.before[key]
	rate := before.rate
	if elapsed := now.Sub(before.at); known && elapsed > 0 {
		rate = new(uint64(float64(less(usage, before.usage)) / elapsed.Seconds()))
	}
	c.before[key] = cpuSample{at: now, usage: usage, rate: rate}
	return &CPUStats{Time: now, UsageCoreNanoSeconds: &usage, UsageNanoCores: rate}
}

func memory(now time.Time, usage Usage) *MemoryStats {
	out := &MemoryStats{
		Time: now, UsageBytes: &usage.Memory, WorkingSetBytes: &usage.WorkingSet, RSSBytes: &usage.RSS,
		PageFaults: &usage.Faults, MajorPageFaults: &usage.Major,
	}
	if usage.Limit > 0 {
		out.AvailableBytes = new(less(usage.Limit, usage.WorkingSet))
	}
	return out
}

func network(now time.Time, interfaces []netns.Interface, main string) *NetworkStats {
	out := &NetworkStats{Time: now}
	for _, i := range interfaces {
		one := InterfaceStats{Name: i.Name, RxBytes: new(i.RxBytes), RxErrors: new(i.RxErrors), TxBytes: new(i.TxBytes), TxErrors: new(i.TxErrors)}
		out.Interfaces = append(out.Interfaces, one)
		if i.Name == main {
			out.InterfaceStats = one
		}
	}
	return out
}

func fileSystem(now time.Time, path string) *FsStats {
	var s unix.Statfs_t
	if path == "" || unix.Statfs(path, &s) != nil {
		return nil
	}
	block := uint64(s.Bsize)
	return &FsStats{
		Time:           now,
		AvailableBytes: new(s.Bavail * block), CapacityBytes: new(s.Blocks * block), UsedBytes: new((s.Blocks - s.Bfree) * block),
		InodesFree: new(s.Ffree), Inodes: new(s.Files), InodesUsed: new(s.Files - s.Ffree),
	}
}

func processes(now time.Time) *RlimitStats {
	limit, err := number("/proc/sys/kernel/pid_max")
	if err != nil {
		return nil
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return nil
	}
	return &RlimitStats{Time: now, MaxPID: new(int64(limit)), NumOfRunningProcesses: new(int64(info.Procs))}
}

func bootTime(now time.Time) time.Time {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return now
	}
	return now.Add(-time.Duration(info.Uptime) * time.Second).Truncate(time.Second)
}

// defaultInterface is the one with the default route.
func defaultInterface() string {
	data, err := os.ReadFile(filepath.Join("/proc/self/net", "route"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "00000000" {
			return fields[0]
		}
	}
	return ""
}

func value(v *cri.UInt64Value) *uint64 {
	if v == nil {
		return nil
	}
	return &v.Value
}

func at(nanoseconds int64, fallback time.Time) time.Time {
	if nanoseconds <= 0 {
		return fallback
	}
	return time.Unix(0, nanoseconds)
}
