package volumes_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
}

// describe a file as "mode uid gid".
func describe(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%o %d %d", stat.Mode&0o7777, stat.Uid, stat.Gid)
}

func emptyDir(name string, source corev1.EmptyDirVolumeSource) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &source}}
}

func TestEmptyDir(t *testing.T) {
	needRoot(t)
	w, limit := newWorld(t), resource.MustParse("1Mi")
	pod := newPod(emptyDir("disk", corev1.EmptyDirVolumeSource{}), emptyDir("memory", corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}))
	defer w.manager.TearDown(t.Context(), pod.UID)
	w.setUp(t, pod)
	for _, name := range []string{"disk", "memory"} {
		if got := describe(t, w.path(t, pod, name)); got != "777 0 0" {
			t.Errorf("%s is %s, want 777 0 0", name, got)
		}
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(w.path(t, pod, "memory"), &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Type != unix.TMPFS_MAGIC || int64(stat.Blocks)*stat.Bsize != 1<<20 {
		t.Errorf("memory is of type %x with %d bytes", stat.Type, int64(stat.Blocks)*stat.Bsize)
	}

	// What the pod made of it stays, over restarts of the agent.
	file := filepath.Join(w.path(t, pod, "memory"), "file")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), os.Chmod(w.path(t, pod, "disk"), 0o711)); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.setUp(t, pod)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if got := describe(t, w.path(t, pod, "disk")); got != "711 0 0" {
		t.Errorf("disk is %s, want 711 0 0", got)
	}
	if err := w.manager.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.root, "pods/u1/volumes")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volumes are left: %v", err)
	}
}

// TestMemoryLimit holds a volume to the memory limit of its pod only when that has one.
func TestMemoryLimit(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	pod := newPod(emptyDir("v", corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}))
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Mi")}
	size := func() int64 {
		defer w.manager.TearDown(t.Context(), pod.UID)
		w.setUp(t, pod)
		var stat unix.Statfs_t
		if err := unix.Statfs(w.path(t, pod, "v"), &stat); err != nil {
			t.Fatal(err)
		}
		return int64(stat.Blocks) * stat.Bsize
	}
	if got := size(); got != 2<<20 {
		t.Errorf("%d bytes, want 2 MiB", got)
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "d"})
	if got := size(); got <= 2<<20 {
		t.Errorf("%d bytes although a container has no limit", got)
	}
}

func TestOwners(t *testing.T) {
	needRoot(t)
	group, user, other, mode := int64(3000), int64(1000), int64(1001), int32(0o400)
	tests := []struct {
		name                          string
		group, user, containerUser    *int64
		token, config, secret, folder string
	}{
		{name: "neither", token: "644 0 0", config: "644 0 0", secret: "400 0 0", folder: "777 0 0"},
		{name: "group", group: &group, token: "640 0 3000", config: "644 0 3000", secret: "440 0 3000", folder: "2777 0 3000"},
		{name: "user", user: &user, token: "600 1000 0", config: "644 0 0", secret: "400 0 0", folder: "777 0 0"},
		{name: "user and group", user: &user, group: &group, token: "640 1000 3000", config: "644 0 3000", secret: "440 0 3000", folder: "2777 0 3000"},
		{name: "container's user", user: &user, containerUser: &other, token: "600 1001 0", config: "644 0 0", secret: "400 0 0", folder: "777 0 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"s": nil}}
			secret.Namespace, secret.Name = "ns", "s"
			w := newWorld(t, configMap("cm", map[string]string{"a": "1"}), secret)
			hidden := corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: &mode}}}
			pod := newPod(withToken(), emptyDir("e", corev1.EmptyDirVolumeSource{}), hidden)
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: test.group, RunAsUser: test.user}
			if test.containerUser != nil {
				pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: test.containerUser}
			}
			defer w.manager.TearDown(t.Context(), pod.UID)
			w.setUp(t, pod)
			got := map[string]string{
				"token": describe(t, w.path(t, pod, "v")+"/token"), "config": describe(t, w.path(t, pod, "v")+"/a"),
				"secret": describe(t, w.path(t, pod, "s")+"/s"), "folder": describe(t, w.path(t, pod, "e")),
			}
			want := map[string]string{"token": test.token, "config": test.config, "secret": test.secret, "folder": test.folder}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("modes and owners (-want +got):\n%s", diff)
			}
			var stat unix.Statfs_t
			if err := unix.Statfs(w.path(t, pod, "s"), &stat); err != nil || stat.Type != unix.TMPFS_MAGIC {
				t.Errorf("the secret is on a disk (%x, %v)", stat.Type, err)
			}
		})
	}
}

func TestSubPath(t *testing.T) {
	needRoot(t)
	outside := t.TempDir()
	victim := filepath.Join(outside, "victim")
	if err := os.WriteFile(victim, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	group := int64(3000)
	pod := newPod(emptyDir("v", corev1.EmptyDirVolumeSource{}))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	defer func() {
		if err := w.manager.TearDown(t.Context(), pod.UID); err != nil {
			t.Error(err)
		}
	}()
	w.setUp(t, pod)
	dir := w.path(t, pod, "v")
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "real"), 0o755),
		os.WriteFile(filepath.Join(dir, "real/file"), []byte("inside"), 0o644),
		os.Symlink("real", filepath.Join(dir, "link")),
		os.Symlink(outside, filepath.Join(dir, "absolute")),
		os.Symlink(victim, filepath.Join(dir, "absolute-file")),
		os.Symlink(outside+"/nowhere", filepath.Join(dir, "dangling")),
		os.Symlink("../../../../../..", filepath.Join(dir, "up")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"absolute", "absolute/victim", "absolute-file", "dangling", "dangling/deep", "up", "up/etc", "..", "../..", "real/file/deep"} {
		t.Run("refused "+sub, func(t *testing.T) {
			if path, err := w.manager.SubPath(pod, "v", "c", sub); err == nil {
				t.Errorf("it leads to %s", path)
			}
		})
	}
	if got := describe(t, victim); got != "600 0 0" {
		t.Errorf("the file outside is %s now", got)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Error("something was made outside")
	}
	for _, sub := range []string{"link/file", "real/file"} {
		path, err := w.manager.SubPath(pod, "v", "c", sub)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); string(data) != "inside" {
			t.Errorf("%s has %q, %v", sub, data, err)
		}
	}
	made, err := w.manager.SubPath(pod, "v", "c", "new/deep")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{made, filepath.Join(dir, "new"), filepath.Join(dir, "new/deep")} {
		if got := describe(t, path); got != "2777 0 3000" {
			t.Errorf("%s is %s, want 2777 0 3000", path, got)
		}
	}
	w.restart()
	w.setUp(t, pod)
	for range 3 {
		again, err := w.manager.SubPath(pod, "v", "c", "new/deep")
		if err != nil {
			t.Fatal(err)
		}
		if again != made || mounts(t, made) != 1 {
			t.Errorf("bound at %s as well as %s (%d times)", again, made, mounts(t, made))
		}
	}
	// The folder was replaced: what it is now is bound.
	if err := errors.Join(os.Remove(filepath.Join(dir, "new/deep")), os.Mkdir(filepath.Join(dir, "new/deep"), 0o755), os.WriteFile(filepath.Join(dir, "new/deep/now"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	again, err := w.manager.SubPath(pod, "v", "c", "new/deep")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(again, "now")); err != nil || mounts(t, again) != 1 {
		t.Errorf("the former folder is bound: %v", err)
	}
}

func mounts(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), " "+path+" ")
}

// TestTearDownSparesHost reaches the root by a link, which is not how the kernel names mounts.
func TestTearDownSparesHost(t *testing.T) {
	needRoot(t)
	w, host := newWorld(t), t.TempDir()
	link := filepath.Join(t.TempDir(), "root")
	if err := errors.Join(os.Symlink(w.root, link), os.Mkdir(filepath.Join(host, "sub"), 0o755), os.WriteFile(filepath.Join(host, "sub/keep"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	w.root = link
	w.restart()
	pod := newPod(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}})
	w.setUp(t, pod)
	path, err := w.manager.SubPath(pod, "v", "c", "sub")
	if err != nil {
		t.Fatal(err)
	}
	w.restart() // the mounts are found, not remembered
	if err := w.manager.TearDown(t.Context(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the binding is left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(host, "sub/keep")); err != nil {
		t.Errorf("the host's file is gone: %v", err)
	}
}

func TestShareRoot(t *testing.T) {
	needRoot(t)
	w := newWorld(t)
	defer func() {
		for mounts(t, w.root) > 0 {
			if err := unix.Unmount(w.root, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		}
	}()
	both := corev1.MountPropagationBidirectional
	pod := newPod(emptyDir("v", corev1.EmptyDirVolumeSource{}))
	pod.Spec.Containers[0].VolumeMounts[0].MountPropagation = &both
	for range 2 {
		w.setUp(t, pod)
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+w.root+" ") {
			n++
			if !strings.Contains(line, "shared:") {
				t.Errorf("not shared: %s", line)
			}
		}
	}
	if n > 1 {
		t.Errorf("mounted %d times", n)
	}
}
