package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"proa/internal/mounts"

	"golang.org/x/sys/unix"
)

// stopProcess asks a process to end and waits, by its pidfd so that a reused number is never hit; after the timeout it
// is killed.
func stopProcess(ctx context.Context, pid int, timeout time.Duration) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGTERM, timeout}, {unix.SIGKILL, 10 * time.Second}} {
		if err := unix.PidfdSendSignal(fd, step.signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("stop process %d: %w", pid, err)
		}
		if deadline, ok := ctx.Deadline(); ok {
			step.wait = min(step.wait, time.Until(deadline))
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(step.wait.Milliseconds()))
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return fmt.Errorf("process %d does not end", pid)
}

// Down stops the cluster in dir, or the node that runs there: the process, its containers, and everything they left in the machine (mounts, namespaces,
// bridges, packet rules, cgroups). The data stays for the next start unless remove is set. It also cleans up after a
// server that was killed.
func Down(ctx context.Context, dir string, remove bool, out io.Writer) error {
	s, err := Running(dir)
	switch {
	case err == nil:
		what := "server"
		if s.Agent {
			what = "agent"
		}
		fmt.Fprintf(out, "stopping the %s (process %d)\n", what, s.PID)
		if err := stopProcess(ctx, s.PID, 20*time.Second); err != nil {
			return err
		}
	case errors.Is(err, ErrNotRunning):
		if s, err = loadState(dir); err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				return err
			}
			s = &State{}
		}
	default:
		return err
	}
	var errs []error
	for i, name := range s.Nodes {
		fmt.Fprintf(out, "cleaning up node %s\n", name)
		if i > 0 {
			errs = append(errs, stopExtra(ctx, dir, name))
		}
		errs = append(errs, cleanNode(ctx, s.nodeDir(dir, name), name, i > 0))
	}
	if len(s.Nodes) > 1 {
		errs = append(errs, cleanBridge())
	}
	if !s.Agent {
		errs = append(errs, UnmergeKubeconfig(filepath.Join(dir, "admin.kubeconfig")))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if remove {
		if err := mounts.Detach(dir); err != nil {
			return err
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		fmt.Fprintf(out, "removed %s\n", dir)
	}
	fmt.Fprintln(out, "proa is down")
	return nil
}
