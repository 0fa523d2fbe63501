// Package containerd runs a containerd of proa's own: a process with its own root, state and socket below a data
// directory, detached so that it and its containers survive proa, and taken over again by the next proa. It writes the
// configuration, watches over nothing while all is well, and can remove everything a daemon has left behind.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/internal/mounts"
	"proa/node/cri"
	"proa/node/images"
)

// socketPathLimit is how long a unix socket's path may be (sun_path without its end).
const socketPathLimit = 107

// rootDir is the part of the directory that outlives a purge.
const rootDir = "root"

// startTimeout bounds the wait for a started daemon's CRI service.
const startTimeout = 60 * time.Second

// Config of a daemon. Dir is required.
type Config struct {
	// Dir holds all of the daemon: config.toml, containerd.sock, containerd.log, pid, root/ (with the images) and state/.
	Dir string
	Log *slog.Logger
	// CNIConfDir and CNIBinDir: default Dir/cni, and the first of /opt/cni/bin, /usr/lib/cni and /usr/libexec/cni that
	// has plugins.
	CNIConfDir, CNIBinDir string
	// Binary is the containerd program, default "containerd" as found in PATH.
	Binary string
	// RegistryConfDir has certs.d style registry configuration (hosts.toml); default Dir/certs.d.
	RegistryConfDir string
	// Snapshotter: default overlayfs, or native where the file system below Dir cannot carry an overlay.
	Snapshotter string
	// OwnImages are imported besides the pause image before Start returns, such as images.ImportDemo.
	OwnImages []func(ctx context.Context, socket string) error
}

// Daemon is a running containerd. Use Start.
type Daemon struct {
	config Config
	log    *slog.Logger
	pid    process
}

// Start makes the containerd of the data directory run with this configuration and waits until its CRI service answers
// and the pause image is there. A daemon that runs already is taken over; one with an older configuration is restarted,
// which leaves its containers alone.
func Start(ctx context.Context, config Config) (*Daemon, error) {
	d, err := prepare(config)
	if err != nil {
		return nil, err
	}
	changed, err := d.writeConfig()
	if err != nil {
		return nil, err
	}
	running, alive := readProcess(d.path("pid"))
	if alive && (changed || !d.answers(ctx, 5*time.Second)) {
		d.log.Info("containerd restarts", "pid", running.PID, "changed", changed)
		if err := running.stop(ctx, 10*time.Second); err != nil {
			return nil, fmt.Errorf("stop old containerd: %w", err)
		}
		alive = false
	}
	if alive {
		d.pid = running
		d.log.Info("containerd taken over", "pid", running.PID)
	} else if err := d.launch(ctx, running); err != nil {
		return nil, err
	}
	for _, load := range append([]func(context.Context, string) error{images.ImportPause}, config.OwnImages...) {
		if err := load(ctx, d.Socket()); err != nil {
			return nil, fmt.Errorf("load images that come with proa: %w", err)
		}
	}
	return d, nil
}

// Socket is the path of the daemon's socket, for CRI as for containerd's own services.
func (d *Daemon) Socket() string { return d.path("containerd.sock") }

// PID is the daemon's process.
func (d *Daemon) PID() int { return d.pid.PID }

func (d *Daemon) path(name string) string { return filepath.Join(d.config.Dir, name) }

func prepare(config Config) (*Daemon, error) {
	if config.Dir == "" {
		return nil, errors.New("containerd needs a directory")
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	config.Dir = dir
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	d := &Daemon{config: config, log: config.Log}
	if len(d.Socket()+".ttrpc") > socketPathLimit {
		return nil, fmt.Errorf("the path of socket %s.ttrpc has more than %d bytes: choose a shorter data directory", d.Socket(), socketPathLimit)
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	d.config.CNIConfDir = orDefault(config.CNIConfDir, d.path("cni"))
	d.config.CNIBinDir = orDefault(config.CNIBinDir, findPlugins())
	d.config.Binary = orDefault(config.Binary, "containerd")
	d.config.RegistryConfDir = orDefault(config.RegistryConfDir, d.path("certs.d"))
	if d.config.Snapshotter == "" {
		d.config.Snapshotter = "overlayfs"
		if err := tryOverlay(dir); err != nil {
			d.log.Warn("file system carries no overlay, images will be copied", "dir", dir, "err", err)
			d.config.Snapshotter = "native"
		}
	}
	for _, dir := range []string{d.config.CNIConfDir, d.config.RegistryConfDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func orDefault(value, fallback string) string {
	if value != "" {
		return value
	}
	return fallback
}

// findPlugins returns the first of the places distributions put CNI plugins.
func findPlugins() string {
	places := []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
	found := slices.IndexFunc(places, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "loopback"))
		return err == nil
	})
	return places[max(found, 0)]
}

// launch starts a new daemon in a session of its own.
func (d *Daemon) launch(ctx context.Context, previous process) error {
	binary, err := exec.LookPath(d.config.Binary)
	if err != nil {
		return fmt.Errorf("find containerd: %w", err)
	}
	if previous.Boot != "" && previous.Boot != bootID() {
		// containerd expects state to be gone after a boot, as it is from its usual place below /run.
		if err := mounts.RemoveAll(d.path("state")); err != nil {
			return fmt.Errorf("clear state of the last boot: %w", err)
		}
	}
	if err := os.Remove(d.Socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	output, err := openLog(d.path("containerd.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(binary, "--config", d.path("config.toml"))
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// A notify socket of proa's own service manager is not containerd's to write to, and the temporary folder of who starts
	// proa may go with their session, which the daemon outlives: without it no command could be run in a container.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "NOTIFY_SOCKET=") || strings.HasPrefix(entry, "TMPDIR=")
	})
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ended := make(chan error, 1)
	// Collects the exit status whenever the daemon ends while proa lives; there is nothing to wait for at the end of
	// proa, because the daemon outlives it.
	go func() { ended <- cmd.Wait() }()
	if d.pid, err = recordProcess(d.path("pid"), cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ready := make(chan bool, 1)
	wait, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func() { ready <- d.answers(wait, startTimeout) }()
	select {
	case err := <-ended:
		cancel()
		<-ready
		return fmt.Errorf("containerd ended at its start (%v): %s", err, logTail(d.path("containerd.log")))
	case ok := <-ready:
		if !ok {
			return errors.Join(fmt.Errorf("containerd does not answer: %s", logTail(d.path("containerd.log"))), cmd.Process.Kill())
		}
	}
	d.log.Info("containerd started", "pid", d.pid.PID, "snapshotter", d.config.Snapshotter, "took", time.Since(started))
	return nil
}

// answers tells whether the CRI service answers within the timeout.
func (d *Daemon) answers(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := cri.Connect(d.Socket())
	if err != nil {
		return false
	}
	defer conn.Close()
	// The socket is served a moment before CRI is initialized, which shows as a failing call.
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, 100*time.Millisecond) {
		if _, err := v1.NewRuntimeServiceClient(conn).Status(ctx, &v1.StatusRequest{}, grpc.WaitForReady(true)); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(delay):
		}
	}
}

// logLimit is the size at which a daemon's log is begun anew at the next start.
const logLimit = 16 << 20

func openLog(path string) (*os.File, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o600)
}

// logTail returns the last lines of the log for an error message.
func logTail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		_, _ = file.Seek(max(0, info.Size()-1500), io.SeekStart)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}
