package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa/client"
)

// emptyDir is a folder of the pod's own, on disk, in memory or in huge pages.
func (m *Manager) emptyDir(pod *corev1.Pod, v *corev1.Volume) (Source, error) {
	dir := m.dir(pod, "empty-dir", v.Name)
	made := false
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		made = true
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return Source{}, err
		}
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
	case medium == corev1.StorageMediumHugePages, medium != "" && len(medium) > len(corev1.StorageMediumHugePagesPrefix):
		mounted, err := isMountPoint(dir)
		if err != nil {
			return source, err
		}
		if !mounted {
			made = true
			options := ""
			if size := string(medium)[min(len(medium), len(corev1.StorageMediumHugePagesPrefix)):]; size != "" {
				options = "pagesize=" + size
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
	if err := os.Chmod(dir, 0o777); err != nil {
		return source, err
	}
	if gid := fsGroup(pod); gid != nil {
		if err := os.Chown(dir, -1, int(*gid)); err != nil {
			return source, err
		}
		if err := os.Chmod(dir, 0o777|fs.ModeSetgid); err != nil {
			return source, err
		}
	}
	return source, nil
}

// memoryOptions bounds a memory volume by its size limit and by the pod's memory limit.
func memoryOptions(pod *corev1.Pod, v *corev1.Volume) string {
	size := int64(0)
	if limit, ok := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})[corev1.ResourceMemory]; ok {
		size = limit.Value()
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

// claim finds the place of the host behind a claim.
func (m *Manager) claim(ctx context.Context, pod *corev1.Pod, name string, readOnly bool) (Source, error) {
	claim, err := client.For[*corev1.PersistentVolumeClaim](m.config.Client).Get(ctx, pod.Namespace, name)
	if err != nil {
		return Source{}, err
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return Source{}, fmt.Errorf("persistentvolumeclaim %q is not bound", name)
	}
	volume, err := client.For[*corev1.PersistentVolume](m.config.Client).Get(ctx, "", claim.Spec.VolumeName)
	if err != nil {
		return Source{}, err
	}
	var source Source
	switch {
	case volume.Spec.HostPath != nil:
		source, err = hostPath(volume.Spec.HostPath)
	case volume.Spec.Local != nil:
		source = Source{Path: volume.Spec.Local.Path}
		_, err = os.Stat(source.Path)
	default:
		err = fmt.Errorf("persistentvolume %q is of a kind that the node does not support", volume.Name)
	}
	if err != nil {
		return source, err
	}
	source.ReadOnly = source.ReadOnly || readOnly
	if gid := fsGroup(pod); gid != nil && !source.ReadOnly && volume.Spec.Local != nil {
		err = own(source.Path, int(*gid))
	}
	return source, err
}

// own gives a tree to a group, readable and writable.
func own(root string, gid int) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			return os.Lchown(path, -1, gid)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
		mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | 0o660
		if d.IsDir() {
			mode |= 0o110 | fs.ModeSetgid
		}
		return os.Chmod(path, mode)
	})
}
