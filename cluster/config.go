// Package cluster starts and joins everything: certificates, kubeconfig, bootstrap objects, the store, the API server, the
// controllers, the scheduler and the nodes. It alone sees all components; they see only the API.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
)

// Version is what proa says it is: the Kubernetes version it offers, with its own as build metadata.
const (
	KubernetesVersion = "v1.31.14"
	Version           = "v1.31.14+proa.0.1"
)

// Config of a server: the control plane and, unless NoNode, this machine as a node.
type Config struct {
	// DataDir holds everything that outlives the process. Default /var/lib/proa for root, else below the home directory.
	DataDir string
	// InMemory keeps no data on disk; the cluster is gone when the process ends.
	InMemory bool
	// NoNode runs no containers and needs no privilege.
	NoNode bool
	// Nodes is the number of real nodes of this machine, each beyond the first in namespaces of its own. Default: as many as
	// the cluster had before, else 1.
	Nodes int
	// HollowNodes is the number of simulated nodes.
	HollowNodes int
	// Port of the API. Default: 6443 of loopback and, with nodes, of the node's address.
	Port int
	// NodeName of this machine. Default: the host name.
	NodeName string
	// NodeAddress of this machine. Default: the address of its default route.
	NodeAddress netip.Addr
	// PodCIDR and ServiceCIDR are the ranges of pods and Services.
	PodCIDR, ServiceCIDR netip.Prefix
	// RuntimeEndpoint is the socket of a container runtime to use instead of an own containerd.
	RuntimeEndpoint string
	Log             *slog.Logger
}

// withDefaults returns c completed, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir()
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, err
	}
	c.DataDir = dir
	if c.Nodes == 0 && !c.NoNode {
		c.Nodes = 1
		if s, err := loadState(c.DataDir); err == nil {
			c.Nodes = max(1, len(s.Nodes))
		}
	}
	if c.Nodes < 0 || c.Nodes > 50 || c.HollowNodes < 0 || c.HollowNodes > 10000 {
		return c, errors.New("one machine has 0 to 50 nodes (--nodes) and 0 to 10000 hollow nodes (--hollow-nodes)")
	}
	if c.NoNode && c.Nodes > 0 {
		return c, errors.New("--nodes and --no-node contradict each other")
	}
	if !c.NoNode && os.Geteuid() != 0 {
		return c, errors.New("running containers needs root; run as root, or without a node (--no-node)")
	}
	c.Port = cmp.Or(c.Port, 6443)
	if c.Port < 1 || c.Port > 65535 {
		return c, fmt.Errorf("--port %d: use a port from 1 to 65535", c.Port)
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("find this machine's name: %w", err)
		}
		c.NodeName = nodeName(name)
	}
	if !c.PodCIDR.IsValid() {
		c.PodCIDR = netip.MustParsePrefix("10.244.0.0/16")
	}
	if !c.ServiceCIDR.IsValid() {
		c.ServiceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	}
	if c.PodCIDR.Overlaps(c.ServiceCIDR) {
		return c, fmt.Errorf("pod range %v and service range %v overlap", c.PodCIDR, c.ServiceCIDR)
	}
	if !c.NodeAddress.IsValid() {
		c.NodeAddress = defaultAddress()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// DefaultDataDir is where a cluster lives when the user does not say.
func DefaultDataDir() string {
	if dir := os.Getenv("PROA_DATA_DIR"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/var/lib/proa"
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "share", "proa")
	}
	return filepath.Join(os.TempDir(), "proa")
}

// nth returns the n-th address of a range (0: the network's own).
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a
}
