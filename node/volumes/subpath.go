package volumes

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// SubPath returns a path that leads to a part of a volume and nowhere else: the part is opened without leaving the volume by
// any link, and bound to a place of the pod's own. Folders that are missing are made. The same part is bound once for each
// container, however often that restarts.
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
	part, err := openInside(root, sub)
	if err != nil {
		return "", err
	}
	defer unix.Close(part)
	dir := filepath.Join(m.podDir(pod.UID), "volume-subpaths", volume, container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(filepath.Clean(sub)))
	target := filepath.Join(dir, hex.EncodeToString(sum[:8]))
	return target, bind(part, target)
}

// bind makes target show what is open, unless it does already.
func bind(part int, target string) error {
	var want unix.Stat_t
	if err := unix.Fstat(part, &want); err != nil {
		return err
	}
	mounted, err := isMountPoint(target)
	if err != nil {
		return err
	}
	if mounted {
		if shows(target, want) {
			return nil
		}
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if want.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o640)
	}
	if err != nil {
		return err
	}
	// Not with the mounts below it, and not sharing its own with the host: what is unmounted here must stay mounted there.
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(part), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", target, err)
	}
	if err := unix.Mount("", target, "", unix.MS_SLAVE, ""); err != nil {
		return errors.Join(fmt.Errorf("bind %s: %w", target, err), unix.Unmount(target, unix.MNT_DETACH))
	}
	if !shows(target, want) {
		return errors.Join(fmt.Errorf("bind %s: something else is there", target), unix.Unmount(target, unix.MNT_DETACH))
	}
	return nil
}

func shows(path string, want unix.Stat_t) bool {
	var got unix.Stat_t
	err := unix.Lstat(path, &got)
	return err == nil && got.Dev == want.Dev && got.Ino == want.Ino
}

// openInside opens a path below root, following no link out of it, and makes folders that are missing: like root they are
// for those who may use the volume, and belong to its group if it hands that on.
func openInside(root int, sub string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, sub, how)
	if err == nil {
		return fd, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return -1, fmt.Errorf("open %s in the volume: %w", sub, err)
	}
	var volume unix.Stat_t
	if err := unix.Fstat(root, &volume); err != nil {
		return -1, err
	}
	current, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	path := ""
	for part := range strings.SplitSeq(filepath.Clean(sub), "/") {
		path = filepath.Join(path, part)
		next, err := unix.Openat2(root, path, how)
		if errors.Is(err, unix.ENOENT) {
			next, err = mkdirAt(current, part, volume.Mode&0o7777)
		}
		unix.Close(current)
		if err != nil {
			return -1, fmt.Errorf("make %s in the volume: %w", path, err)
		}
		current = next
	}
	return current, nil
}

// mkdirAt makes and opens a folder. A name that is taken, as by a link to nowhere, is an error: nothing that was not made
// here is opened or changed.
func mkdirAt(dir int, name string, mode uint32) (int, error) {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, err
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
