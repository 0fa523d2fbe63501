package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// demoImage comes with the binary.
const demoImage = "proa.local/demo:latest"

// measureFirstPod starts a cluster whose container runtime has the image already but whose store is empty, and creates a
// pod as soon as the API takes it.
func measureFirstPod(ctx context.Context, b *bench) ([]reading, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "proa-bench-")
	if err != nil {
		return nil, err
	}
	defer b.down(dir)
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	up := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, b.binary, append([]string{"up", "--no-kubeconfig", "--data-dir", dir, "--port", strconv.Itoa(port)}, args...)...)
		cmd.Env = append(os.Environ(), b.env...)
		return cmd
	}
	if out, err := up("--demo").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("proa up --demo: %w: %s", err, out)
	}
	if out, err := b.downCommand(ctx, dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("proa down: %w: %s", err, out)
	}
	if err := forgetCluster(dir); err != nil {
		return nil, err
	}
	var progress bytes.Buffer
	cmd := up()
	cmd.Stdout, cmd.Stderr = &progress, &progress
	s := &server{dir: dir, url: fmt.Sprintf("https://127.0.0.1:%d", port), started: time.Now(), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	if err := c.post(ctx, c.h1, pods, encode(object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "first"},
		"spec": object{"containers": []object{{"name": "web", "image": demoImage, "imagePullPolicy": "Never"}}},
	})); err != nil {
		return nil, errors.Join(err, cmd.Wait())
	}
	err = s.poll(ctx, func() bool { return isReady(ctx, c, pods+"/first") })
	took := time.Since(s.started)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%w: %s", err, progress.String())
	}
	return []reading{{fmt.Sprintf("%s (node ready after %s)", seconds(took), nodeReadyAt(progress.String())), took < 3*time.Second}}, nil
}

// forgetCluster keeps only the images of nodes.
func forgetCluster(dir string) error {
	for _, pattern := range []string{"*", "nodes/*/*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, f := range files {
			if base := filepath.Base(f); base == "nodes" || base == "containerd" {
				continue
			}
			if err := os.RemoveAll(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// nodeReadyAt finds the time in what proa up says.
func nodeReadyAt(progress string) string {
	for line := range strings.Lines(progress) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "node" && fields[3] == "ready" {
			return fields[0]
		}
	}
	return "?"
}

// down stops whatever runs in a data directory and removes it.
func (b *bench) down(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := b.downCommand(ctx, dir, "--delete").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: proa down: %v: %s\n", err, out)
	}
}

// downCommand stops a cluster and leaves the user's kubeconfig alone.
func (b *bench) downCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.binary, append([]string{"down", "--data-dir", dir}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "none"))
	return cmd
}

// waitNode waits until the server's node is ready.
func waitNode(ctx context.Context, s *server, c *api) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return s.poll(ctx, func() bool { return isReady(ctx, c, nodes+"/"+strings.ToLower(host)) })
}

// isReady reports whether an object has the condition Ready.
func isReady(ctx context.Context, c *api, path string) bool {
	var buf bytes.Buffer
	if err := c.get(ctx, c.h1, path, &buf); err != nil {
		return false
	}
	var o struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(buf.Bytes(), &o); err != nil {
		return false
	}
	for _, cond := range o.Status.Conditions {
		if cond.Type == "Ready" && cond.Status == "True" {
			return true
		}
	}
	return false
}
