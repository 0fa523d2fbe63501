package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa/apiserver/request"
	"proa/client"
	"proa/internal/netns"
	"proa/network/podnet"
)

// Nodes beyond the first live in network namespaces that a bridge connects with the machine.
const hostBridge = "proa-nodes"

var hostNetwork = netip.MustParsePrefix("10.243.0.1/16")

func namespaceName(node string) string { return "proa-" + node }

// nodeClient acts as a node.
func (s *server) nodeClient(name string) client.Interface {
	return s.api.Client(&request.User{Name: request.NodeUserPrefix + name, Groups: []string{request.Nodes, request.AllAuthenticated}}, "kubelet")
}

// startNodes starts this machine's nodes and waits until the first is ready.
func (s *server) startNodes(c client.Interface, progress func(string)) error {
	if s.config.HollowNodes > 0 {
		if err := s.startHollow(); err != nil {
			return err
		}
		progress(fmt.Sprintf("%d hollow nodes started", s.config.HollowNodes))
	}
	if s.config.NoNode {
		return nil
	}
	name := s.config.nodeName(0)
	cert := s.ca.Renewing(nodeLeaf(name, []string{s.config.NodeAddress.String()}))
	first := &realNode{
		name: name, address: s.config.NodeAddress, dir: nodeDir(s.config.DataDir, name), client: s.nodeClient(name),
		certificate: cert.ForServer, authority: s.ca.Pool(), podCIDR: s.config.PodCIDR, serviceCIDR: s.config.ServiceCIDR,
		clusterDNS: clusterDNS(s.config), runtimeEndpoint: s.config.RuntimeEndpoint, dns: true, log: s.log,
	}
	if err := first.start(s.group.ctx, s.group); err != nil {
		return fmt.Errorf("start node %s: %w", name, err)
	}
	for i := 1; i < s.config.Nodes; i++ {
		if err := s.startExtra(i); err != nil {
			return fmt.Errorf("start node %s: %w", s.config.nodeName(i), err)
		}
	}
	for i := range s.config.Nodes {
		if err := waitNode(s.group.ctx, c, s.config.nodeName(i)); err != nil {
			return err
		}
		progress("node " + s.config.nodeName(i) + " ready")
	}
	return nil
}

// waitNode waits until a node is ready.
func waitNode(ctx context.Context, c client.Interface, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 90*time.Second, fmt.Errorf("node %s is not ready after 90 s", name))
	defer cancel()
	done := errors.New("ready")
	found, stop := context.WithCancelCause(ctx)
	err := c.Subscribe(found, func(e client.Event) {
		n, ok := e.New.(*corev1.Node)
		if !ok || n.Name != name {
			return
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				stop(done)
			}
		}
	}, client.For[*corev1.Node](c).Scope())
	switch cause := context.Cause(found); {
	case errors.Is(cause, done):
		return nil
	case cause != nil:
		return cause
	}
	return err
}

// startExtra starts a further node of this machine: an agent of its own in namespaces of its own, which outlives this
// process like the containers do.
func (s *server) startExtra(i int) error {
	name := s.config.nodeName(i)
	dir := nodeDir(s.config.DataDir, name)
	if _, err := Running(dir); err == nil {
		return nil // it ran on while the server was away
	}
	if err := podnet.NewHostBridge(hostBridge, hostNetwork, s.config.NodeAddress); err != nil {
		return err
	}
	address := nth(hostNetwork, i+1)
	path, err := podnet.NewNamespace(namespaceName(name), hostBridge, netip.PrefixFrom(address, hostNetwork.Bits()), hostNetwork.Addr())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "agent", "--server", "https://"+netip.AddrPortFrom(s.config.NodeAddress, uint16(s.config.Port)).String(),
		"--data-dir", dir, "--node-name", name, "--node-address", address.String(), "--machine-address", s.config.NodeAddress.String())
	cmd.Env = append(os.Environ(), "PROA_TOKEN="+strings.Join([]string{tokenPrefix, s.ca.Hash(), s.secret}, "."))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS}
	// A child belongs to the network namespace of the thread that starts it.
	if err := netns.Do(path, cmd.Start); err != nil {
		return err
	}
	s.group.start("agent "+name, func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			// A node may die; the cluster goes on without it, as with one on another machine.
			s.log.Error("agent ended", "node", name, "err", err, "log", log.Name())
		case <-ctx.Done():
		}
		return nil
	})
	return nil
}

// keeps reports whether this machine's i-th node is to have the name that it had before.
func (c Config) keeps(i int, name string) bool { return i < c.Nodes && c.nodeName(i) == name }

// dropNodes removes the nodes that the cluster had before and is to have no longer: their state is about to be forgotten.
func dropNodes(ctx context.Context, config Config) error {
	before, err := loadState(config.DataDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case before.Agent:
		if _, err := os.Stat(filepath.Join(config.DataDir, identityFile)); errors.Is(err, os.ErrNotExist) {
			return nil // it never joined
		}
		return fmt.Errorf("%s is that of a node of %s; choose another --data-dir, or give the node up with: %s", config.DataDir, before.Server, command(config.DataDir, "down --delete"))
	}
	var errs []error
	for i, name := range before.Nodes {
		if config.keeps(i, name) {
			continue
		}
		if i > 0 {
			errs = append(errs, stopExtra(ctx, config.DataDir, name))
		}
		errs = append(errs, cleanNode(ctx, nodeDir(config.DataDir, name), name, i > 0))
	}
	return errors.Join(errs...)
}

// stopExtra stops the agent of a further node.
func stopExtra(ctx context.Context, dir, name string) error {
	data, err := os.ReadFile(filepath.Join(nodeDir(dir, name), "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := Running(nodeDir(dir, name)); errors.Is(err, ErrNotRunning) {
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("agent %s: %w", name, err)
	}
	return stopProcess(ctx, pid, 15*time.Second)
}

func cleanBridge() error { return podnet.DeleteHostBridge(hostBridge) }
