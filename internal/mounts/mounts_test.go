package mounts

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is bound into a folder outlives the folder, also when a link leads to it; a mount on the folder itself stays when only
// those below are to go.
func TestNothingIsRemovedThroughMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	host, dir, link := filepath.Join(base, "host"), filepath.Join(base, "real", "dir"), filepath.Join(base, "link")
	inner := filepath.Join(dir, "with space")
	for _, d := range []string{host, inner} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(host, "precious")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(dir), link); err != nil {
		t.Fatal(err)
	}
	bind := func(from, to string) {
		t.Helper()
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			t.Skipf("mounts cannot be made here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) }) // gone already, unless the test failed
	}
	bind(dir, dir)
	bind(host, inner)
	if err := Detach(filepath.Join(link, "dir")); err != nil {
		t.Fatal(err)
	}
	if points, err := below(dir, true); err != nil || len(points) != 1 || points[0] != dir {
		t.Errorf("after Detach: %v, %v; want the folder's own mount", points, err)
	}
	bind(host, inner)
	if err := RemoveAll(filepath.Join(link, "dir")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the host's file: %v", err)
	}
	if err := RemoveAll(dir); err != nil {
		t.Errorf("a folder that is gone: %v", err)
	}
}
