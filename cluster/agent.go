package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"proa/api/builtin"
	"proa/client/remote"
)

// AgentConfig of a node that joins another machine's cluster.
type AgentConfig struct {
	// Server is the URL of the cluster's API, Token the join token.
	Server, Token string
	DataDir       string
	NodeName      string
	NodeAddress   netip.Addr
	// MachineAddress is set for a node in a namespace of the server's machine: the server's node address.
	MachineAddress  netip.Addr
	RuntimeEndpoint string
	Log             *slog.Logger
}

// RunAgent runs this machine as a node until ctx ends.
func RunAgent(ctx context.Context, c AgentConfig) error {
	if c.Server == "" {
		return errors.New("--server is needed: the URL of the cluster's API, such as https://192.0.2.10:6443")
	}
	var err error
	if c.Server, err = serverURL(c.Server); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("running containers needs root")
	}
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		c.NodeName = nodeName(host)
	}
	if !c.NodeAddress.IsValid() {
		c.NodeAddress = defaultAddress()
	}
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return err
	}
	lock, err := lockDir(c.DataDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(c.DataDir, "pki")); err == nil {
		return fmt.Errorf("%s holds a cluster of its own; choose another --data-dir, or give the cluster up with: %s", c.DataDir, command(c.DataDir, "down --delete"))
	}
	state := &State{PID: os.Getpid(), Started: time.Now(), Server: c.Server, Nodes: []string{c.NodeName}, Agent: true}
	if err := state.save(c.DataDir); err != nil {
		return err
	}
	id, err := join(ctx, c.Server, c.Token, c.DataDir, c.NodeName, []string{c.NodeAddress.String()})
	if err != nil {
		return err
	}
	c.Log.Info("joined", "node", c.NodeName, "server", c.Server)
	certificate := &renewing{ask: func(ctx context.Context, id *identity) (*identity, error) {
		return id.renew(ctx, c.Server, c.DataDir, c.NodeName, []string{c.NodeAddress.String()})
	}}
	certificate.current.Store(id)
	api := remote.New(remote.Config{
		Table: builtin.Table(), Server: c.Server, UserAgent: "kubelet", Log: c.Log,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: id.pool, GetClientCertificate: certificate.forClient},
	})
	g := newGroup(ctx, c.Log)
	g.start("certificate", func(ctx context.Context) error { return certificate.run(ctx, c.Log, api.Reconnect) })
	n := &realNode{
		name: c.NodeName, address: c.NodeAddress, dir: c.DataDir, client: api,
		certificate: certificate.forServer, authority: id.pool,
		podCIDR: id.PodCIDR, serviceCIDR: id.ServiceCIDR, clusterDNS: id.ClusterDNS, host: c.MachineAddress,
		runtimeEndpoint: c.RuntimeEndpoint, log: c.Log,
	}
	if err := n.start(g.ctx, g); err != nil {
		g.fail(err)
	}
	return g.wait()
}
