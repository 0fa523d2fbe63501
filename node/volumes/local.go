package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// emptyDir is a folder of the pod's own, on disk, in memory or in huge pages.
func (m *Manager) emptyDir(pod *corev1.Pod, v *corev1.Volume) (Source, error) {
	dir := m.dir(pod, "empty-dir", v.Name)
	made, err := makeDir(dir)
	if err != nil {
		return Source{}, err
	}
	source := Source{Path: dir, Relabel: true}
	switch medium := v.EmptyDir.Medium; {
	case medium == corev1.StorageMediumMemory:
		mounted, err := isMountPoint(dir)
		if err != nil {
			return source, err
		}
		if !mounted {
			made = true
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, memoryOptions(pod, v)); err != nil {
				return source, fmt.Errorf("mount tmpfs: %w", err)
			}
		}
	case strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePages)):
		mounted, err := isMountPoint(dir)
		if err != nil {
			return source, err
		}
		if !mounted {
			made = true
			options, err := hugePageOptions(pod, v.EmptyDir)
			if err != nil {
				return source, err
			}
			if err := unix.Mount("nodev", dir, "hugetlbfs", 0, options); err != nil {
				return source, fmt.Errorf("mount hugetlbfs: %w", err)
			}
		}
	}
	if !made {
		return source, nil
	}
	// Every container of the pod may write, whoever it runs as.
	mode := fs.FileMode(0o777)
	if gid := fsGroup(pod); gid != nil {
		if err := os.Chown(dir, -1, int(*gid)); err != nil {
			return source, err
		}
		mode |= fs.ModeSetgid
	}
	return source, os.Chmod(dir, mode)
}

// makeDir makes a folder and reports whether it is new. It has no permissions until its maker gives it some; one that was
// left like that is new, too.
func makeDir(dir string) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return false, err
	}
	if err := os.Mkdir(dir, 0); err == nil || !errors.Is(err, fs.ErrExist) {
		return true, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return false, err
	}
	return info.Mode().Perm() == 0, nil
}

// memoryOptions bounds a memory volume by its size limit, and by the pod's memory limit if all of its containers have one.
func memoryOptions(pod *corev1.Pod, v *corev1.Volume) string {
	size := int64(0)
	limited := func(c corev1.Container) bool { return !c.Resources.Limits.Memory().IsZero() }
	if all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers); !slices.ContainsFunc(all, func(c corev1.Container) bool { return !limited(c) }) {
		limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
		size = limits.Memory().Value()
	}
	if v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Value() > 0 && (size == 0 || v.EmptyDir.SizeLimit.Value() < size) {
		size = v.EmptyDir.SizeLimit.Value()
	}
	if size == 0 {
		return ""
	}
	return fmt.Sprintf("size=%d", size)
}

// hostPath checks that a place of the host is what the volume says, and makes it where the type asks for that.
func hostPath(v *corev1.HostPathVolumeSource) (Source, error) {
	source := Source{Path: v.Path}
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	info, err := os.Stat(v.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return source, err
	}
	bad := func(what string) (Source, error) {
		return source, fmt.Errorf("hostPath type check failed: %s is not %s", v.Path, what)
	}
	switch kind {
	case corev1.HostPathUnset:
		// The runtime makes a folder if nothing is there.
		if missing {
			return source, os.MkdirAll(v.Path, 0o755)
		}
	case corev1.HostPathDirectoryOrCreate:
		if missing {
			return source, os.MkdirAll(v.Path, 0o755)
		}
		if !info.IsDir() {
			return bad("a directory")
		}
	case corev1.HostPathFileOrCreate:
		if missing {
			f, err := os.OpenFile(v.Path, os.O_CREATE, 0o644)
			if err != nil {
				return source, err
			}
			return source, f.Close()
		}
		if !info.Mode().IsRegular() {
			return bad("a file")
		}
	case corev1.HostPathDirectory:
		if missing || !info.IsDir() {
			return bad("a directory")
		}
	case corev1.HostPathFile:
		if missing || !info.Mode().IsRegular() {
			return bad("a file")
		}
	case corev1.HostPathSocket:
		if missing || info.Mode()&fs.ModeSocket == 0 {
			return bad("a socket file")
		}
	case corev1.HostPathCharDev:
		if missing || info.Mode()&fs.ModeCharDevice == 0 {
			return bad("a character device")
		}
	case corev1.HostPathBlockDev:
		if missing || info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0 {
			return bad("a block device")
		}
	default:
		return source, fmt.Errorf("unknown hostPath type %q", kind)
	}
	return source, nil
}
