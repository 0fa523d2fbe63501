package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// progressEnv names the file descriptor on which a server that Up started tells how far it is: one line per step, and "ready"
// in the end.
const progressEnv = "PROA_PROGRESS_FD"

// UpOptions of Up.
type UpOptions struct {
	// DataDir of the cluster.
	DataDir string
	// ServerArgs are the arguments of the server process, "server" first, without the data directory.
	ServerArgs []string
	// NoKubeconfig leaves the user's kubeconfig alone.
	NoKubeconfig bool
	Timeout      time.Duration
	Out          io.Writer
}

// Up starts a server in the background, unless one is running, and waits until it is ready. It returns the server's state
// and whether it was running before.
func Up(ctx context.Context, o UpOptions) (s *State, found bool, err error) {
	if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return nil, false, err
	}
	s, err = Running(o.DataDir)
	switch {
	case err == nil && s.Agent:
		return nil, false, fmt.Errorf("this machine is a node of %s already (process %d); stop it with: %s", s.Server, s.PID, command(o.DataDir, "down"))
	case err == nil:
		found = true
		fmt.Fprintf(o.Out, "proa is already running: %s (process %d, since %s)\n", s.Server, s.PID, s.Started.Local().Format(time.DateTime))
		if len(o.ServerArgs) > 1 {
			fmt.Fprintf(o.Out, "it keeps the settings it was started with; for others: %s, then proa up again\n", command(o.DataDir, "down"))
		}
	case errors.Is(err, ErrNotRunning):
		if s, err = startServer(ctx, o); err != nil {
			return nil, false, err
		}
	default:
		return nil, false, err
	}
	if !o.NoKubeconfig {
		file, err := MergeKubeconfig(filepath.Join(o.DataDir, "admin.kubeconfig"))
		if err != nil {
			return nil, found, err
		}
		fmt.Fprintf(o.Out, "kubectl uses it now: context %q in %s\n", ContextName, file)
	}
	return s, found, nil
}

func startServer(ctx context.Context, o UpOptions) (*State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not ready after %v; see %s/server.log", o.Timeout, o.DataDir))
	defer cancel()
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, err
	}
	logFile := filepath.Join(o.DataDir, "server.log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	offset, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	progress, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer progress.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append(slices.Clone(o.ServerArgs), "--data-dir="+o.DataDir)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{write}
	cmd.Env = append(os.Environ(), progressEnv+"=3")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := time.Now()
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(progress); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case line, ok := <-lines:
			if !ok {
				err := cmd.Wait()
				return nil, serverError(err, logFile, offset)
			}
			fmt.Fprintf(o.Out, "%6.2fs  %s\n", time.Since(start).Seconds(), line)
			if line == "ready" {
				if err := cmd.Process.Release(); err != nil {
					return nil, err
				}
				return loadState(o.DataDir)
			}
		}
	}
}

// serverError says why a server ended with status: by its last word, which is the last line of its log since offset.
func serverError(status error, file string, offset int64) error {
	data, err := os.ReadFile(file)
	if err != nil || int64(len(data)) <= offset {
		return fmt.Errorf("the server ended (%w) and logged nothing", status)
	}
	lines := strings.Split(strings.TrimSpace(string(data[offset:])), "\n")
	last := lines[len(lines)-1]
	if reason, ok := strings.CutPrefix(last, "proa: "); ok {
		return errors.New(reason)
	}
	return fmt.Errorf("the server ended (%w), see %s: %s", status, file, last)
}

// progressWriter returns the function by which a server tells its parent how far it is; without a parent it does nothing.
func progressWriter() func(step string) {
	fd, err := strconv.Atoi(os.Getenv(progressEnv))
	if err != nil {
		return func(string) {}
	}
	os.Unsetenv(progressEnv)
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "progress")
	return func(step string) {
		if file == nil {
			return
		}
		if _, err := fmt.Fprintln(file, step); err != nil || step == "ready" {
			file.Close()
			file = nil
		}
	}
}
