package node

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// capacity of the node: measured once, with what the configuration says instead.
func (n *Node) capacity() corev1.ResourceList {
	n.measure.Do(func() {
		out := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(n.MaxPods), resource.DecimalSI)}
		out[corev1.ResourceCPU] = *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI)
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil {
			out[corev1.ResourceMemory] = *resource.NewQuantity(int64(info.Totalram)*int64(info.Unit), resource.BinarySI)
		}
		if n.RootDir != "" {
			var fs unix.Statfs_t
			dir := n.RootDir
			for unix.Statfs(dir, &fs) != nil && dir != "/" {
				dir = filepath.Dir(dir)
			}
			out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(fs.Blocks)*fs.Bsize, resource.BinarySI)
			hugepages(out)
		}
		for name, q := range n.Capacity {
			out[name] = q
		}
		n.measured = out
	})
	return n.measured
}

// hugepages of each size that the kernel has set aside.
func hugepages(out corev1.ResourceList) {
	dirs, _ := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB") // the pattern is constant
	for _, dir := range dirs {
		size, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "nr_hugepages"))
		if err != nil {
			continue
		}
		count, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			continue
		}
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size*1024, resource.BinarySI).String()
		out[corev1.ResourceName(name)] = *resource.NewQuantity(count*size*1024, resource.BinarySI)
	}
}

// allocatable is what pods may have of the node.
func (n *Node) allocatable() corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range n.capacity() {
		left := q.DeepCopy()
		left.Sub(n.Reserved[name])
		if left.Sign() < 0 {
			left.Set(0)
		}
		out[name] = left
	}
	return out
}

// hostInfo reads what the machine says about itself.
func (n *Node) hostInfo() corev1.NodeSystemInfo {
	read := func(path string) string {
		data, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	info := corev1.NodeSystemInfo{MachineID: read("/etc/machine-id"), BootID: read("/proc/sys/kernel/random/boot_id")}
	info.SystemUUID = read("/sys/class/dmi/id/product_uuid")
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		info.KernelVersion = string(bytes.TrimRight(name.Release[:], "\x00"))
	}
	info.OSImage = "Linux"
	for line := range strings.Lines(read("/etc/os-release")) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			info.OSImage = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return info
}
