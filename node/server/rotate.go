package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// Defaults of log rotation, those of the kubelet's configuration.
const (
	DefaultLogSize  = 10 << 20
	DefaultLogFiles = 5
)

// rotatePause is the least time between two looks at the sizes of logs that are written to. In a second a container may
// write more than the limit; that much is the price of not counting every write.
const rotatePause = time.Second

// Rotator keeps containers' logs below a size. It watches the logs of running containers for writes and looks at sizes
// only then: containers that are silent cost nothing.
type Rotator struct {
	// Runtime, Log are required. MaxSize and MaxFiles (the current one included) have defaults.
	Runtime  runtime.Runtime
	Log      *slog.Logger
	MaxSize  int64
	MaxFiles int

	in inotify

	mu      sync.Mutex
	watches map[int32]watched // by number of the watch
}

type watched struct{ container, path string }

// Run rotates until ctx ends.
func (r *Rotator) Run(ctx context.Context) error {
	if r.MaxSize <= 0 {
		r.MaxSize = DefaultLogSize
	}
	if r.MaxFiles <= 0 {
		r.MaxFiles = DefaultLogFiles
	}
	r.MaxFiles = max(2, r.MaxFiles)
	var err error
	if r.in, err = newInotify(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.in.Close() })
	defer stop()
	r.watches = map[int32]watched{}

	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		cancel(r.Runtime.Events(ctx, func(event runtime.Event) {
			if event.Container == "" {
				return
			}
			r.look(ctx, event.Container)
		}))
		_ = r.in.Close()
	})
	containers, err := r.Runtime.ListContainers(ctx, running)
	if err != nil {
		return errors.Join(fmt.Errorf("list containers for log rotation: %w", err), r.in.Close())
	}
	for _, container := range containers {
		r.look(ctx, container.Id)
	}
	for {
		written := map[int32]bool{}
		if err := r.in.read(func(watch int32, _ uint32, _ string) { written[watch] = true }); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("wait for log writes: %w", err)
		}
		for watch := range written {
			r.mu.Lock()
			log, ok := r.watches[watch]
			r.mu.Unlock()
			if !ok {
				continue
			}
			if err := r.check(ctx, log); err != nil && ctx.Err() == nil {
				r.Log.Error("log not rotated", "container", log.container, "path", log.path, "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(rotatePause):
		}
	}
}

// look begins or ends watching the log of a container by whether it runs.
func (r *Rotator) look(ctx context.Context, id string) {
	status, err := r.Runtime.ContainerStatus(ctx, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && status.State == cri.ContainerState_CONTAINER_RUNNING && status.LogPath != "" {
		// The file itself rather than its directory: an older instance's directory is the same. A file rotated away is
		// followed by a new watch in check.
		if watch, err := r.in.add(status.LogPath, unix.IN_MODIFY); err == nil {
			r.watches[watch] = watched{id, status.LogPath}
		} else if ctx.Err() == nil {
			r.Log.Warn("log not watched for rotation", "container", id, "path", status.LogPath, "err", err)
		}
		return
	}
	for watch, log := range r.watches {
		if log.container == id {
			r.in.remove(watch)
			delete(r.watches, watch)
		}
	}
}

// check rotates a log that has grown too big.
func (r *Rotator) check(ctx context.Context, log watched) error {
	info, err := os.Stat(log.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() < r.MaxSize {
		return err
	}
	if err := rotate(log.path, r.MaxFiles, time.Now(), func() error { return r.Runtime.ReopenContainerLog(ctx, log.container) }); err != nil {
		return err
	}
	r.mu.Lock()
	for watch, other := range r.watches {
		if other == log {
			r.in.remove(watch)
			delete(r.watches, watch)
		}
	}
	r.mu.Unlock()
	r.look(ctx, log.container)
	return nil
}

// rotate moves a log away, has the runtime open a new one, and keeps as many files as wanted, the current one included:
// the newest old one as it is, because followers may still read it, the others compressed.
func rotate(path string, keep int, now time.Time, reopen func() error) error {
	old := path + "." + now.UTC().Format("20060102-150405")
	if err := os.Rename(path, old); err != nil {
		return err
	}
	if err := reopen(); err != nil {
		return errors.Join(fmt.Errorf("reopen log: %w", err), os.Rename(old, path))
	}
	files, err := rotatedLogs(path)
	if err != nil {
		return err
	}
	if excess := len(files) - (keep - 1); excess > 0 {
		for _, file := range files[:excess] {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
		files = files[excess:]
	}
	for _, file := range files[:max(0, len(files)-1)] {
		if strings.HasSuffix(file, ".gz") {
			continue
		}
		if err := compress(file); err != nil {
			return fmt.Errorf("compress %s: %w", file, err)
		}
	}
	return nil
}

// rotatedLogs lists the old files of a log, the oldest first.
func rotatedLogs(path string) ([]string, error) {
	files, err := filepath.Glob(path + ".*")
	if err != nil {
		return nil, err
	}
	slices.Sort(files) // by the time in their names
	return slices.DeleteFunc(files, func(file string) bool {
		if strings.HasSuffix(file, ".tmp") {
			_ = os.Remove(file) // of a compression that was interrupted
			return true
		}
		return false
	}), nil
}

// RemoveLogs removes a container's log with the old files of its rotation.
func RemoveLogs(path string) error {
	files, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	for _, file := range append(files, path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func compress(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	temporary := path + ".tmp"
	out, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	zipper := gzip.NewWriter(out)
	_, err = io.Copy(zipper, in)
	if err := errors.Join(err, zipper.Close(), out.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return errors.Join(os.Rename(temporary, path+".gz"), os.Remove(path))
}
