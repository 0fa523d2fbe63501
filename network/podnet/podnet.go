// Package podnet is the pod network of a node: it gives the container runtime its CNI configuration (a bridge with addresses
// from the node's range), routes to the other nodes' pods, directly or through VXLAN, and gives packets that leave the
// cluster the node's address. It also makes the network namespaces in which several nodes live on one machine. Everything
// it makes has its own name, table or route protocol and can be taken away again.
package podnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa/client"
	"proa/internal/netns"
)

const defaultBridge = "proa0"

// Config of a node's pod network.
type Config struct {
	Client   client.Interface
	NodeName string
	// NodeIP is the node's own address, by which other nodes reach it.
	NodeIP netip.Addr
	// ClusterCIDRs are the ranges of all pods, ServiceCIDRs those of the Services.
	ClusterCIDRs, ServiceCIDRs []netip.Prefix
	// Host is the address of the node that is the machine itself, for a node in a namespace of that machine: it is
	// reached through the default gateway without a tunnel.
	Host netip.Addr
	// Bridge is the name of the pods' bridge. Default "proa0".
	Bridge string
	// MTU of the pods' interfaces. Default: that of the interface with the node's address.
	MTU int
	// ConfDir is where the CNI configuration goes, PluginDirs where the plugins are. Default: /usr/lib/cni, /opt/cni/bin.
	ConfDir    string
	PluginDirs []string
	// DataDir keeps which addresses are taken.
	DataDir string
	// NetNS is the path of the node's network namespace. Default: that of this process.
	NetNS string
	Log   *slog.Logger
}

// Back-off after a failure to set up the network.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Network of a node. Use New.
type Network struct {
	config Config
	log    *slog.Logger

	mu     sync.Mutex
	nodes  map[string]*corev1.Node
	synced bool
	wake   chan struct{}
}

// New returns a pod network that does nothing until Run.
func New(c Config) (*Network, error) {
	if c.NodeName == "" || c.ConfDir == "" || c.DataDir == "" || !c.NodeIP.IsValid() {
		return nil, errors.New("the pod network needs the node's name, address, CNI folder and data folder")
	}
	c.Bridge = cmp.Or(c.Bridge, defaultBridge)
	if len(c.PluginDirs) == 0 {
		c.PluginDirs = []string{"/usr/lib/cni", "/opt/cni/bin"}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Network{
		config: c, log: c.Log.With("component", "podnet"), nodes: map[string]*corev1.Node{}, wake: make(chan struct{}, 1),
	}, nil
}

// Run keeps configuration and routes as the Node objects want them until ctx ends. What it made stays.
func (n *Network) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		cancel(n.config.Client.Subscribe(ctx, n.observe, client.For[*corev1.Node](n.config.Client).Scope()))
	})
	defer wg.Wait()
	n.loop(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (n *Network) observe(e client.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := true
	switch {
	case e.Synced():
		n.synced = true
	case e.New == nil:
		delete(n.nodes, e.Old.GetName())
	default:
		node, ok := e.New.(*corev1.Node)
		if !ok {
			return
		}
		old := n.nodes[node.Name]
		n.nodes[node.Name] = node
		// Heartbeats change Nodes all the time; addresses and ranges rarely do.
		changed = old == nil || !slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) || internalIP(old) != internalIP(node)
	}
	if n.synced && changed {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

func (n *Network) loop(ctx context.Context) {
	var retry <-chan time.Time
	delay := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-retry:
		}
		retry = nil
		n.mu.Lock()
		nodes := make([]*corev1.Node, 0, len(n.nodes))
		for _, node := range n.nodes {
			nodes = append(nodes, node)
		}
		n.mu.Unlock()
		if err := n.apply(nodes); err != nil {
			n.log.Error("pod network not set up", "err", err, "retry", delay)
			retry, delay = time.After(delay), min(2*delay, lastRetry)
			continue
		}
		delay = firstRetry
	}
}

// peer is another node.
type peer struct {
	name string
	addr netip.Addr
	pods []netip.Prefix
}

// apply sets everything up for the present nodes. The CNI configuration comes last: with it the node is ready for pods.
func (n *Network) apply(nodes []*corev1.Node) error {
	var own []netip.Prefix
	var peers []peer
	for _, node := range nodes {
		pods := prefixes(node)
		if node.Name == n.config.NodeName {
			own = pods
		} else if addr := internalIP(node); addr.IsValid() && len(pods) > 0 {
			peers = append(peers, peer{node.Name, addr, pods})
		}
	}
	if len(own) == 0 {
		return nil // the range comes with the next change of the Node
	}
	slices.SortFunc(peers, func(a, b peer) int { return cmp.Compare(a.name, b.name) })
	bridged, err := n.sysctls(own)
	if err != nil {
		return err
	}
	mtu, err := n.links(own, peers)
	if err != nil {
		return err
	}
	if err := n.rules(own, bridged); err != nil {
		return err
	}
	if err := n.openLoopback(); err != nil {
		return err
	}
	return n.writeConf(own, mtu)
}

// openLoopback lets the node's own packets from 127.0.0.1 leave by our devices, so that node ports and host ports answer on
// that address. The machine's own network cards stay as they are: without our rules their neighbours could reach what listens
// on loopback only.
func (n *Network) openLoopback() error {
	devices := []string{n.config.Bridge, tunnelName}
	if n.config.Host.IsValid() {
		devices = append(devices, namespaceLink)
	}
	for _, d := range devices {
		if err := routeLoopback(n.config.NetNS, d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sysctls lets the node forward, and reports whether the kernel shows bridged packets to the packet filter.
func (n *Network) sysctls(own []netip.Prefix) (bridged bool, err error) {
	if err := netns.Sysctl(n.config.NetNS, "net/ipv4/ip_forward", "1"); err != nil {
		return false, err
	}
	bridged = true
	for _, p := range own {
		name := "net/bridge/bridge-nf-call-iptables"
		if p.Addr().Is6() {
			name = "net/bridge/bridge-nf-call-ip6tables"
			if err := netns.Sysctl(n.config.NetNS, "net/ipv6/conf/all/forwarding", "1"); err != nil {
				return false, err
			}
		}
		switch err := netns.Sysctl(n.config.NetNS, name, "1"); {
		case errors.Is(err, fs.ErrNotExist):
			bridged = false
		case err != nil:
			return false, err
		}
	}
	return bridged, nil
}

// Cleanup takes everything away that Run made. It is for when the node leaves.
func (n *Network) Cleanup() error {
	err := os.Remove(filepath.Join(n.config.ConfDir, confName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, n.removeLinks(), removeTable(n.config.NetNS, podTable), os.RemoveAll(n.config.DataDir))
}

func prefixes(node *corev1.Node) []netip.Prefix {
	list := node.Spec.PodCIDRs
	if len(list) == 0 && node.Spec.PodCIDR != "" {
		list = []string{node.Spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func internalIP(node *corev1.Node) netip.Addr {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				return ip
			}
		}
	}
	return netip.Addr{}
}

// writeFile replaces a file in one step: the runtime watches the folder.
func writeFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder for %s: %w", path, err)
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
