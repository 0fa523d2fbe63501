// Package mounts takes mounts away below a folder before the folder itself goes, so that nothing is ever removed through
// a mount: it could be the host's.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Detach unmounts everything below dir, the deepest first; a mount on dir itself stays. It fails when a mount is left.
func Detach(dir string) error {
	_, err := detach(dir, false)
	return err
}

// RemoveAll unmounts everything in and below dir and removes it. While anything is mounted there, nothing is removed.
func RemoveAll(dir string) error {
	dir, err := detach(dir, true)
	if err != nil || dir == "" {
		return err
	}
	return os.RemoveAll(dir)
}

// detach returns the real path of dir, empty when there is none.
func detach(dir string, itself bool) (string, error) {
	// The kernel lists mounts by their real paths.
	dir, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	points, err := below(dir, itself)
	if err != nil {
		return "", err
	}
	var errs []error
	for i := len(points) - 1; i >= 0; i-- {
		if err := unix.Unmount(points[i], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", points[i], err))
		}
	}
	if len(points) == 0 || len(errs) > 0 {
		return dir, errors.Join(errs...)
	}
	left, err := below(dir, itself)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%s is still mounted", left[0])
	}
	return dir, err
}

// below lists the mount points below dir, which has no links in it, and dir's own if asked for, in the order in which they
// were mounted.
func below(dir string, itself bool) ([]string, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var points []string
	for _, m := range all {
		if strings.HasPrefix(m.Point, dir+"/") || itself && m.Point == dir {
			points = append(points, m.Point)
		}
	}
	return points, nil
}

// Mount is one line of the kernel's list.
type Mount struct {
	// Point is where it is mounted.
	Point string
	// Shared says that mounts made in it are seen by its peers.
	Shared bool
}

// unescape reads the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// List returns the mounts that this process sees, in the order in which they were made.
func List() ([]Mount, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []Mount
	for line := range strings.Lines(string(data)) {
		// Point is the fifth field; optional ones, from the seventh on, end at a lone hyphen.
		head, _, _ := strings.Cut(line, " - ")
		f := strings.Fields(head)
		if len(f) < 6 {
			continue
		}
		m := Mount{Point: unescape.Replace(f[4])}
		for _, option := range f[6:] {
			m.Shared = m.Shared || strings.HasPrefix(option, "shared:")
		}
		out = append(out, m)
	}
	return out, nil
}
