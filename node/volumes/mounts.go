package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// removeTree unmounts everything in dir and removes it. While anything is mounted there, nothing is removed: it could be
// the host's.
func removeTree(dir string) error {
	// The kernel lists mounts by their real paths.
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for i := len(points) - 1; i >= 0; i-- {
		if err := unix.Unmount(points[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmount %s: %w", points[i], err)
		}
	}
	if len(points) > 0 {
		left, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s is still mounted", left[0])
		}
	}
	return os.RemoveAll(dir)
}

// mountsBelow lists mount points in or below dir, which has no links in it, in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			p := unescape.Replace(f[4])
			if p == dir || strings.HasPrefix(p, dir+"/") {
				points = append(points, p)
			}
		}
	}
	return points, nil
}

// isMountPoint reports whether something is mounted at path itself; nothing there is no mount.
func isMountPoint(path string) (bool, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &stat)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat %s: %w", path, err)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// shareRoot lets mounts that containers make in their volumes be seen by the host and other containers: dir becomes a
// shared mount, unless it is in one.
func shareRoot(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	shared, err := inSharedMount(dir)
	if err != nil || shared {
		return err
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

// inSharedMount reports whether the mount that dir is in is a shared one.
func inSharedMount(dir string) (bool, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	longest, shared := -1, false
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(string(data)) {
		head, _, _ := strings.Cut(line, " - ")
		f := strings.Fields(head)
		if len(f) < 6 {
			continue
		}
		p := unescape.Replace(f[4])
		inside := p == "/" || p == dir || strings.HasPrefix(dir, p+"/")
		if !inside || len(p) < longest {
			continue
		}
		longest, shared = len(p), false // of mounts at the same place the last is on top
		for _, option := range f[6:] {
			shared = shared || strings.HasPrefix(option, "shared:")
		}
	}
	return shared, nil
}
