package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a running proa.
type server struct {
	cmd     *exec.Cmd
	pid     int
	dir     string
	url     string
	started time.Time
	log     bytes.Buffer
	ended   chan struct{}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// start runs a server with an empty data directory; args come after the usual ones.
func (b *bench) start(args ...string) (*server, error) {
	dir, err := os.MkdirTemp(b.dir, "proa-bench-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, url: fmt.Sprintf("https://127.0.0.1:%d", port), ended: make(chan struct{})}
	s.cmd = exec.Command(b.binary, append([]string{"server", "--data-dir", dir, "--port", strconv.Itoa(port), "--log-level", "warn"}, args...)...)
	s.cmd.Stderr = &s.log
	s.cmd.Env = append(os.Environ(), b.env...)
	s.started = time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.pid = s.cmd.Process.Pid
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // what it said is in the log
	}()
	return s, nil
}

// stop ends the server and forgets its data.
func (s *server) stop() {
	s.end()
	_ = os.RemoveAll(s.dir)
}

// end ends the server; its containers run on.
func (s *server) end() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// waitReady waits until /readyz answers and returns how long that took since the start.
func (s *server) waitReady(ctx context.Context) (time.Duration, error) {
	// The authority is made during the start; nothing secret is sent before it is known.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Second}
	defer c.CloseIdleConnections()
	err := s.poll(ctx, func() bool {
		r, err := c.Get(s.url + "/readyz")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return time.Since(s.started), err
}

// poll asks every few milliseconds until done, for at most a minute and a half and while the server runs.
func (s *server) poll(ctx context.Context, done func() bool) error {
	deadline := time.After(90 * time.Second)
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return errors.New("no result after 90 s")
		case <-s.ended:
			return fmt.Errorf("the server ended: %s", strings.TrimSpace(s.log.String()))
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// ready starts a server without a node and waits until it works: /readyz, the administrator's kubeconfig and the default
// service account.
func (b *bench) ready(ctx context.Context, args ...string) (*server, *api, error) {
	s, err := b.start(args...)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		s.stop()
		return nil, nil, err
	}
	return s, c, nil
}

// connect returns an administrator's client once the default service account exists.
func (s *server) connect(ctx context.Context) (*api, error) {
	if _, err := s.waitReady(ctx); err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "admin.kubeconfig")
	if err := s.poll(ctx, func() bool { _, err := os.Stat(file); return err == nil }); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	var c *api
	err := s.poll(ctx, func() bool {
		var err error
		if c == nil {
			if c, err = newAPI(file); err != nil {
				return false // it is being written
			}
		}
		return c.get(ctx, c.h1, "/api/v1/namespaces/default/serviceaccounts/default", io.Discard) == nil
	})
	return c, err
}

// cpu is the processor time the server has used.
func (s *server) cpu() time.Duration { return processCPU(s.pid) }

// processCPU reads the processor time of a process: user and system, in the kernel's ticks of 10 ms.
func processCPU(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// rss is the memory of a process in bytes.
func rss(pid int) int64 { return procField(pid, "status", "VmRSS:") * 1024 }

// written is how many bytes a process has sent to disks.
func written(pid int) int64 { return procField(pid, "io", "write_bytes:") }

// procField reads a number of a file of /proc/PID; 0 when the process is gone.
func procField(pid int, file, name string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	return 0
}
