package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"proa/client"
	"proa/client/events"
	"proa/internal/mounts"
	"proa/network/dns"
	"proa/network/podnet"
	"proa/network/proxy"
	"proa/node"
	"proa/node/containerd"
	"proa/node/cri"
	nodeserver "proa/node/server"
	"proa/node/stats"
)

// nodePort is where a node's own API listens.
const nodePort = 10250

// proxyHealthPort is where balancers ask how a node's proxy is, as upstream.
const proxyHealthPort = 10256

// realNode is a node that runs containers: what differs between the server's own and a joined one.
type realNode struct {
	name        string
	address     netip.Addr
	dir         string // of this node alone
	client      client.Interface
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	authority   *x509.CertPool
	podCIDR     netip.Prefix
	serviceCIDR netip.Prefix
	clusterDNS  netip.Addr
	// host is the address of the machine, for a node in a namespace of it.
	host            netip.Addr
	runtimeEndpoint string
	// dns says that the cluster's DNS runs here.
	dns bool
	log *slog.Logger
}

// nodeDir is where a node of this machine keeps its data.
func nodeDir(dir, name string) string { return filepath.Join(dir, "nodes", name) }

// cgroupRoot is the cgroup of everything that a node runs.
func cgroupRoot(name string) string { return "/proa/" + name }

// nodeName is the name of this machine's i-th node.
func (c Config) nodeName(i int) string {
	if i == 0 {
		return c.NodeName
	}
	return fmt.Sprintf("%s-%d", c.NodeName, i+1)
}

// start brings the node up: runtime, agent, its API, and the network. The parts belong to g.
func (n *realNode) start(ctx context.Context, g *group) error {
	if err := claimMachine(ctx, n.dir); err != nil {
		return err
	}
	cni := filepath.Join(n.dir, "cni")
	for _, dir := range []string{n.dir, cni} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	log := n.log.With("node", n.name)
	socket := n.runtimeEndpoint
	if socket == "" {
		daemon, err := containerd.Start(ctx, containerd.Config{Dir: filepath.Join(n.dir, "containerd"), Log: log, CNIConfDir: cni})
		if err != nil {
			return fmt.Errorf("start containerd: %w", err)
		}
		socket = daemon.Socket()
	}
	runtime, err := cri.Dial(ctx, strings.TrimPrefix(socket, "unix://"), log)
	if err != nil {
		return fmt.Errorf("reach the container runtime: %w", err)
	}
	recorder := events.New(n.client, log, "kubelet", n.name)
	agent, err := node.New(node.Config{
		Name: n.name, Client: n.client, Runtime: runtime, Log: log, Events: recorder,
		RootDir: filepath.Join(n.dir, "kubelet"), LogDir: filepath.Join(n.dir, "logs"),
		Addresses: []netip.Addr{n.address}, ServerPort: nodePort,
		ClusterDNS: []netip.Addr{n.clusterDNS}, CgroupRoot: cgroupRoot(n.name), Unprivileged: !mayLowerOOMScore(),
	})
	if err != nil {
		return err
	}
	api, err := nodeserver.New(nodeserver.Config{
		Addr:    netip.AddrPortFrom(n.address, nodePort).String(),
		TLS:     &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: n.certificate, ClientCAs: n.authority},
		Runtime: runtime, Pods: agent, Log: log,
		Stats: stats.New(stats.Config{NodeName: n.name, Runtime: runtime, Log: log, RootDir: n.dir}),
	})
	if err != nil {
		return err
	}
	pods, err := podnet.New(podnet.Config{
		Client: n.client, NodeName: n.name, NodeIP: n.address, ClusterCIDRs: []netip.Prefix{n.podCIDR}, ServiceCIDRs: []netip.Prefix{n.serviceCIDR},
		Host: n.host, ConfDir: cni, DataDir: filepath.Join(n.dir, "podnet"), Log: log,
	})
	if err != nil {
		return err
	}
	services, err := proxy.New(proxy.Config{Client: n.client, NodeName: n.name, PodCIDRs: []netip.Prefix{n.podCIDR}, HealthPort: proxyHealthPort, Log: log})
	if err != nil {
		return err
	}
	g.start("events of node "+n.name, recorder.Run)
	if n.dns {
		names, err := dns.New(dns.Config{
			Client: n.client, Addrs: []netip.AddrPort{netip.AddrPortFrom(n.address, dnsPort)}, Avoid: []netip.Addr{n.clusterDNS}, Log: log,
		})
		if err != nil {
			return err
		}
		g.start("dns", names.Run)
	}
	g.start("service proxy", services.Run)
	g.start("pod network", pods.Run)
	g.start("node "+n.name, agent.Run)
	g.start("API of node "+n.name, api.Run)
	rotator := &nodeserver.Rotator{Runtime: runtime, Log: log}
	g.start("log rotation", rotator.Run)
	return nil
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE, without which the kernel lets no process lower its
// out-of-memory score.
func mayLowerOOMScore() bool {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		var effective uint64
		if n, _ := fmt.Sscanf(line, "CapEff: %x", &effective); n == 1 {
			return effective&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}

// cleanNode removes what a node of this machine has left in it: containers, mounts, cgroups, interfaces and packet rules.
// own is the node's directory; an extra node has a network namespace that ends with it. What belongs to a node of another
// cluster that runs here is left alone.
func cleanNode(ctx context.Context, own, name string, extra bool) error {
	var errs []error
	if err := containerd.Stop(ctx, containerd.Config{Dir: filepath.Join(own, "containerd"), Log: slog.New(slog.DiscardHandler), CNIConfDir: filepath.Join(own, "cni")}, true); err != nil {
		errs = append(errs, err)
	}
	if owner := machineOwner(); !extra && owner != "" && owner != own {
		return errors.Join(append(errs, removeFolders(own))...)
	}
	if !extra {
		if pods, err := podnet.New(podnet.Config{NodeName: name, NodeIP: netip.IPv4Unspecified(), ConfDir: filepath.Join(own, "cni"), DataDir: filepath.Join(own, "podnet")}); err == nil {
			errs = append(errs, pods.Cleanup())
		}
		errs = append(errs, proxy.NewNetlink("proa", "").Remove())
	} else {
		errs = append(errs, podnet.DeleteNamespace(namespaceName(name)))
	}
	errs = append(errs, removeCgroups(cgroupRoot(name)), removeFolders(own))
	return errors.Join(errs...)
}

func removeFolders(own string) error {
	var errs []error
	for _, sub := range []string{"kubelet", "logs", "cni", "podnet"} {
		errs = append(errs, mounts.RemoveAll(filepath.Join(own, sub)))
	}
	return errors.Join(errs...)
}

// removeCgroups removes a cgroup, with all below it, from every hierarchy, and the one above when it is empty. Processes
// that are just ending keep a cgroup busy for a moment.
func removeCgroups(root string) error {
	mounts, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range append(mounts, "/sys/fs/cgroup") {
		top := filepath.Join(mount, root)
		if _, err := os.Stat(top); err != nil {
			continue
		}
		killTree(top)
		err := removeTree(top)
		for deadline := time.Now().Add(10 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(deadline); err = removeTree(top) {
			time.Sleep(20 * time.Millisecond)
		}
		errs = append(errs, err)
		// Other nodes' cgroups may be beside it.
		if err := os.Remove(filepath.Dir(top)); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// killTree kills what is left of a node's containers: all in their cgroups belongs to it.
func killTree(top string) {
	_ = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended by itself
			}
		}
		return nil
	})
}

// removeTree removes a cgroup and those below it, the deepest first.
func removeTree(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // what goes away meanwhile need not be removed
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := os.Remove(dirs[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
