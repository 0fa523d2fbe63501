package volumes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"proa/internal/mounts"

	"golang.org/x/sys/unix"
)

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
	all, err := mounts.List()
	if err != nil {
		return false, err
	}
	longest, shared := -1, false
	for _, m := range all {
		inside := m.Point == "/" || m.Point == dir || strings.HasPrefix(dir, m.Point+"/")
		if inside && len(m.Point) >= longest {
			longest, shared = len(m.Point), m.Shared // of mounts at the same place the last is on top
		}
	}
	return shared, nil
}
