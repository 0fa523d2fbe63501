package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// SubPath returns a path that leads to a part of a volume and nowhere else: the part is opened without leaving the volume by
// any link, and bound to a place of the pod's own. Folders that are missing are made.
func (m *Manager) SubPath(pod *corev1.Pod, volume, container, sub string) (string, error) {
	source, ok := m.Path(pod.UID, volume)
	if !ok {
		return "", fmt.Errorf("volume %q is not set up", volume)
	}
	root, err := unix.Open(source.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open volume %s: %w", source.Path, err)
	}
	defer unix.Close(root)
	part, err := openInside(root, sub, fsGroup(pod))
	if err != nil {
		return "", err
	}
	defer unix.Close(part)
	var stat unix.Stat_t
	if err := unix.Fstat(part, &stat); err != nil {
		return "", err
	}
	dir := filepath.Join(m.podDir(pod.UID), "volume-subpaths", volume, container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	target, err := freeName(dir, stat.Mode&unix.S_IFMT == unix.S_IFDIR)
	if err != nil {
		return "", err
	}
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(part), target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return "", fmt.Errorf("bind %s: %w", sub, err)
	}
	return target, nil
}

// freeName makes the next free place to bind to.
func freeName(dir string, folder bool) (string, error) {
	for i := 0; ; i++ {
		target := filepath.Join(dir, strconv.Itoa(i))
		if _, err := os.Lstat(target); err == nil {
			continue
		}
		if folder {
			return target, os.Mkdir(target, 0o750)
		}
		return target, os.WriteFile(target, nil, 0o640)
	}
}

// openInside opens a path below root, following no link out of it, and makes folders that are missing.
func openInside(root int, sub string, gid *int64) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, sub, how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	current, err := unix.Dup(root)
	if err != nil {
		return -1, err
	}
	path := ""
	for part := range strings.SplitSeq(filepath.Clean(sub), "/") {
		path = filepath.Join(path, part)
		next, err := unix.Openat2(root, path, how)
		if errors.Is(err, unix.ENOENT) {
			// The kernel makes folders only below a descriptor that may be written through.
			if err = mkdirAt(current, part, gid); err == nil {
				next, err = unix.Openat2(root, path, how)
			}
		}
		unix.Close(current)
		if err != nil {
			return -1, fmt.Errorf("make %s: %w", path, err)
		}
		current = next
	}
	return current, nil
}

func mkdirAt(dir int, name string, gid *int64) error {
	if err := unix.Mkdirat(dir, name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Fchmodat(dir, name, 0o755, 0); err != nil {
		return err
	}
	if gid != nil {
		if err := unix.Fchownat(dir, name, -1, int(*gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		return unix.Fchmodat(dir, name, 0o2775, 0)
	}
	return nil
}
