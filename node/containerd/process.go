package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process names a process so that its number's next owner is not taken for it: by start time and boot.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // in clock ticks since boot
	Boot  string `json:"boot"`
}

// readProcess reads a pid file. What it returns is the recorded process, alive or not.
func readProcess(path string) (p process, alive bool) {
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &p) != nil {
		return process{}, false
	}
	return p, p.alive()
}

// recordProcess writes the pid file of a process.
func recordProcess(path string, pid int) (process, error) {
	start, _, err := startTime(pid)
	if err != nil {
		return process{}, fmt.Errorf("record process %d: %w", pid, err)
	}
	p := process{PID: pid, Start: start, Boot: bootID()}
	data, err := json.Marshal(p)
	if err != nil {
		return process{}, err
	}
	return p, os.WriteFile(path, append(data, '\n'), 0o600)
}

func (p process) alive() bool {
	if p.PID <= 1 || p.Boot != bootID() {
		return false
	}
	start, state, err := startTime(p.PID)
	return err == nil && start == p.Start && state != "Z"
}

// stop asks the process to end, kills it after the grace period and returns when it is gone.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil || !p.alive() {
		if err == nil {
			_ = unix.Close(fd)
		}
		return nil
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return ignoreGone(err)
	}
	if awaitEnd(ctx, fd, grace) {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return ignoreGone(err)
	}
	if !awaitEnd(context.WithoutCancel(ctx), fd, 10*time.Second) {
		return fmt.Errorf("process %d does not end", p.PID)
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// awaitEnd waits until the process of a pidfd has ended, ctx ends, or the time is over.
func awaitEnd(ctx context.Context, fd int, timeout time.Duration) bool {
	for deadline := time.Now().Add(timeout); ; {
		left := time.Until(deadline)
		if left < 0 {
			return false
		}
		// In steps, because a poll cannot wait for a context too.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(min(left, 100*time.Millisecond).Milliseconds()))
		if n > 0 {
			return true
		}
		if ctx.Err() != nil || (err != nil && err != unix.EINTR) {
			return false
		}
	}
}

// startTime reads a process's start time and state.
func startTime(pid int) (start, state string, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", "", err
	}
	// The second field is the program's name in parentheses and may hold anything.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return "", "", fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	return fields[19], fields[0], nil
}

func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
