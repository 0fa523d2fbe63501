package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/internal/mounts"
	"proa/node/cri"
)

// Stop ends the daemon; its containers keep running under their shims and belong to the next daemon that is started for
// the directory. With purge it also ends all containers and removes their mounts, cgroups and files; only images stay.
func (d *Daemon) Stop(ctx context.Context, purge bool) error {
	var errs []error
	if purge && d.pid.alive() {
		// In good order first, so that network plugins give their addresses back. What fails here is removed by force below.
		if err := d.removeSandboxes(ctx); err != nil {
			d.log.Warn("sandboxes not all removed in good order", "err", err)
		}
	}
	if err := d.pid.stop(ctx, 10*time.Second); err != nil {
		errs = append(errs, fmt.Errorf("stop containerd: %w", err))
	}
	d.log.Info("containerd stopped", "pid", d.pid.PID, "purge", purge)
	if purge {
		errs = append(errs, purgeDir(d.config.Dir))
	}
	return errors.Join(errs...)
}

// Stop ends the containerd of a data directory that this process has not started, as (*Daemon).Stop does. It succeeds when
// there is none.
func Stop(ctx context.Context, config Config, purge bool) error {
	if _, err := os.Stat(config.Dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	d, err := prepare(config)
	if err != nil {
		return err
	}
	d.pid, _ = readProcess(d.path("pid"))
	return d.Stop(ctx, purge)
}

func (d *Daemon) removeSandboxes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	conn, err := cri.Connect(d.Socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	client := v1.NewRuntimeServiceClient(conn)
	list, err := client.ListPodSandbox(ctx, &v1.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range list.Items {
		if _, err := client.StopPodSandbox(ctx, &v1.StopPodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
			errs = append(errs, err)
		}
		if _, err := client.RemovePodSandbox(ctx, &v1.RemovePodSandboxRequest{PodSandboxId: sandbox.Id}); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// purgeDir removes by force what a stopped daemon has left, but for its root, where the images are. Containers of which the
// daemon was not told there have ended then, as after a restart of the machine.
func purgeDir(dir string) error {
	cgroups := killContainers(dir)
	killShims(filepath.Join(dir, "containerd.sock"))
	err := mounts.Detach(dir)
	for _, cgroup := range cgroups {
		_ = os.Remove(cgroup) // only an empty cgroup goes; one shared with others stays
	}
	if err != nil {
		return fmt.Errorf("unmount below %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.Name() != rootDir {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

// killContainers kills the first process of each container, which takes the container's other processes with it when it
// has a PID namespace, and the rest of its cgroup. It returns the cgroups.
func killContainers(dir string) []string {
	var cgroups []string
	files, _ := filepath.Glob(filepath.Join(dir, "state/io.containerd.runtime.v2.task/*/*/init.pid"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		// A number that has a new owner since is recognized by its cgroup: the container's ends in the container's id.
		id := filepath.Base(filepath.Dir(file))
		if err != nil || pid <= 1 || !inCgroup(pid, id) {
			continue
		}
		for _, cgroup := range cgroupsOf(pid, id) {
			cgroups = append(cgroups, cgroup)
			killAll(cgroup)
		}
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return cgroups
}

func inCgroup(pid int, id string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && bytes.Contains(data, []byte(id))
}

// cgroupsOf returns the directories of the container's cgroups, one for each hierarchy.
func cgroupsOf(pid int, id string) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || filepath.Base(parts[2]) != id {
			continue
		}
		for _, place := range []string{strings.TrimPrefix(parts[1], "name="), "unified", ""} {
			cgroup := filepath.Join("/sys/fs/cgroup", place, parts[2])
			if _, err := os.Stat(filepath.Join(cgroup, "cgroup.procs")); err == nil {
				out = append(out, cgroup)
				break
			}
		}
	}
	return out
}

func killAll(cgroup string) {
	data, err := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// killShims ends the shims that serve the daemon's socket, which is in their command line.
func killShims(socket string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, socket) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
