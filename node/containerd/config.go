package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"text/template"

	"golang.org/x/sys/unix"

	"proa/node/images"
)

// configuration is containerd's configuration of version 2, which containerd 1.6 reads and later versions translate.
var configuration = template.Must(template.New("config.toml").Funcs(template.FuncMap{"quote": strconv.Quote}).Parse(`version = 2
root = {{quote .Root}}
state = {{quote .State}}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = {{quote .Socket}}

[ttrpc]
  address = {{quote .TTRPC}}

[debug]
  level = "info"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {{quote .Pause}}
  restrict_oom_score_adj = {{.RestrictOOM}}
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = {{not .HugeTLB}}
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  netns_mounts_under_state_dir = true

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {{quote .CNIBinDir}}
    conf_dir = {{quote .CNIConfDir}}

  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {{quote .RegistryConfDir}}

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {{quote .Snapshotter}}
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = {{quote .RuncRoot}}
        SystemdCgroup = false
`))

// writeConfig writes config.toml and tells whether it differs from the one before.
func (d *Daemon) writeConfig() (changed bool, err error) {
	var out bytes.Buffer
	err = configuration.Execute(&out, struct {
		Root, State, RuncRoot, Socket, TTRPC, Pause string
		CNIBinDir, CNIConfDir, RegistryConfDir      string
		Snapshotter                                 string
		RestrictOOM, HugeTLB                        bool
	}{
		Root:            d.path(rootDir),
		State:           d.path("state"),
		RuncRoot:        d.path("state/runc"),
		Socket:          d.Socket(),
		TTRPC:           d.Socket() + ".ttrpc",
		Pause:           images.PauseImage,
		CNIBinDir:       d.config.CNIBinDir,
		CNIConfDir:      d.config.CNIConfDir,
		RegistryConfDir: d.config.RegistryConfDir,
		Snapshotter:     d.config.Snapshotter,
		RestrictOOM:     !hasCapability(unix.CAP_SYS_RESOURCE),
		HugeTLB:         hasHugeTLB(),
	})
	if err != nil {
		return false, fmt.Errorf("write containerd configuration: %w", err)
	}
	path := d.path("config.toml")
	old, err := os.ReadFile(path)
	if err == nil && bytes.Equal(old, out.Bytes()) {
		return false, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, out.Bytes(), 0o600); err != nil {
		return false, err
	}
	return true, os.Rename(temporary, path)
}

// hasCapability tells whether this process may use the capability.
func hasCapability(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

func hasHugeTLB() bool {
	if _, err := os.Stat("/sys/fs/cgroup/hugetlb"); err == nil {
		return true
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && bytes.Contains(controllers, []byte("hugetlb"))
}

// tryOverlay mounts an overlay below dir and removes it again.
func tryOverlay(dir string) (err error) {
	trial, err := os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(trial)) }()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(trial, name), 0o700); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", trial)
	merged := filepath.Join(trial, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}
