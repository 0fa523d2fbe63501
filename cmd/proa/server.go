package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"proa/cluster"
)

// serverFlags are shared by up and server.
type serverFlags struct {
	cluster.Config
	podCIDR, serviceCIDR, nodeAddress, logLevel string
}

func (f *serverFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.DataDir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	fs.BoolVar(&f.InMemory, "in-memory", false, "keep no data on disk")
	fs.BoolVar(&f.NoNode, "no-node", false, "run no containers: API, controllers and scheduler only; needs no root")
	fs.IntVar(&f.Nodes, "nodes", 0, "real nodes on this machine, each beyond the first in namespaces of its own (default as before, else 1)")
	fs.IntVar(&f.HollowNodes, "hollow-nodes", 0, "simulated nodes: pods run the usual state machine without containers")
	fs.IntVar(&f.Port, "port", 6443, "port of the API")
	fs.StringVar(&f.NodeName, "node-name", "", "name of this node (default the host name)")
	fs.StringVar(&f.nodeAddress, "node-address", "", "address of this node (default that of the default route)")
	fs.StringVar(&f.podCIDR, "pod-cidr", "10.244.0.0/16", "addresses of pods")
	fs.StringVar(&f.serviceCIDR, "service-cidr", "10.96.0.0/16", "addresses of Services")
	fs.StringVar(&f.RuntimeEndpoint, "container-runtime-endpoint", "", "socket of an existing containerd or CRI-O (default: an own containerd)")
	fs.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
}

// args are the command line of a server with these flags, without the data directory.
func (f *serverFlags) args(fs *pflag.FlagSet) []string {
	args := []string{"server"}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&serverFlags{}).add(own)
	fs.Visit(func(flag *pflag.Flag) {
		if own.Lookup(flag.Name) != nil && flag.Name != "data-dir" {
			args = append(args, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return args
}

func (f *serverFlags) config() (cluster.Config, error) {
	c := f.Config
	var err error
	if c.PodCIDR, err = netip.ParsePrefix(f.podCIDR); err != nil {
		return c, fmt.Errorf("--pod-cidr %q: use a range such as 10.244.0.0/16", f.podCIDR)
	}
	if c.ServiceCIDR, err = netip.ParsePrefix(f.serviceCIDR); err != nil {
		return c, fmt.Errorf("--service-cidr %q: use a range such as 10.96.0.0/16", f.serviceCIDR)
	}
	if f.nodeAddress != "" {
		if c.NodeAddress, err = netip.ParseAddr(f.nodeAddress); err != nil {
			return c, fmt.Errorf("--node-address %q: use an IP address", f.nodeAddress)
		}
	}
	c.Log, err = logger(f.logLevel)
	return c, err
}

func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %s: use debug, info, warn or error", strconv.Quote(level))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

func serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:     "server",
		Short:   "Run the cluster in the foreground",
		Long:    "Runs the control plane and, unless told otherwise, this machine as a node, until interrupted.\nContainers run on while the server is away; proa down stops them.",
		Example: "  proa server --data-dir /srv/proa\n  proa server --in-memory --no-node --port 7443",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := f.config()
			if err != nil {
				return err
			}
			return cluster.RunServer(cmd.Context(), config)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func upCommand() *cobra.Command {
	var f serverFlags
	var demo, noKubeconfig bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:     "up",
		Short:   "Start a cluster in the background and point kubectl at it",
		Long:    "Starts the server, waits until the cluster works, and adds the context \"proa\" to your kubeconfig.\nIf the cluster is running already it says so and changes nothing.",
		Example: "  proa up\n  proa up --demo                   # with a small web application\n  proa up --nodes 3\n  proa up --hollow-nodes 1000      # simulated nodes, for scale tests\n  proa up --in-memory --no-node",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.config(); err != nil {
				return err
			}
			if demo && f.NoNode {
				return errors.New("--demo needs a node; leave --no-node out")
			}
			state, _, err := cluster.Up(cmd.Context(), cluster.UpOptions{
				DataDir: f.DataDir, ServerArgs: f.args(cmd.Flags()), NoKubeconfig: noKubeconfig, Timeout: timeout, Out: cmd.OutOrStdout(),
			})
			if err != nil {
				return err
			}
			if demo {
				if err := cluster.Demo(cmd.Context(), f.DataDir, state, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			if noKubeconfig {
				fmt.Fprintf(cmd.OutOrStdout(), "try: kubectl --kubeconfig %s get pods -A\n", filepath.Join(f.DataDir, "admin.kubeconfig"))
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), "try: kubectl get pods -A")
			}
			if state.NodeAddress != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "proa token shows how more machines join")
			}
			return nil
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&demo, "demo", false, "deploy a small web application and print its URL")
	cmd.Flags().BoolVar(&noKubeconfig, "no-kubeconfig", false, "leave your kubeconfig alone")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait")
	return cmd
}

func downCommand() *cobra.Command {
	var dir string
	var remove bool
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop the cluster and everything it runs",
		Long:    "Stops the server or agent and its containers and removes what they left in the machine: mounts, namespaces, bridges,\npacket rules, cgroups, and the context in your kubeconfig. The cluster's data and images stay for the next start.",
		Example: "  proa down\n  proa down --delete               # forget the cluster as well",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.Down(cmd.Context(), dir, remove, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	cmd.Flags().BoolVar(&remove, "delete", false, "remove the cluster's data too")
	return cmd
}

func statusCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether the cluster runs and how it is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.PrintStatus(cmd.Context(), dir, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	return cmd
}

func tokenCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print the token with which machines join",
		Long:    "Prints the token with which other machines join the cluster, and to the error output the whole command for them.",
		Example: "  proa agent --server https://192.0.2.10:6443 --token \"$(proa token)\"",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := cluster.Token(dir)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			if join := cluster.JoinCommand(dir, token); join != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "on the other machine, as root: "+join)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	return cmd
}

func agentCommand() *cobra.Command {
	var c cluster.AgentConfig
	var address, machine, level string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Join this machine to a cluster as a node",
		Long: "Runs this machine as a node of another machine's cluster, until interrupted. On the server, proa token prints the\n" +
			"whole command. The machine needs containerd, runc and the CNI plugins, a name of its own, and the server's address within\n" +
			"reach. Having joined, it comes back without the token. Its containers run on while the agent is away; proa down stops them.",
		Example: "  proa agent --server https://192.0.2.10:6443 --token proa1.…\n  systemd-run --unit=proa-agent proa agent --server https://192.0.2.10:6443 --token proa1.…\n  proa status\n  proa down",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if address != "" {
				if c.NodeAddress, err = netip.ParseAddr(address); err != nil {
					return fmt.Errorf("--node-address: %w", err)
				}
			}
			if machine != "" {
				if c.MachineAddress, err = netip.ParseAddr(machine); err != nil {
					return fmt.Errorf("--machine-address: %w", err)
				}
			}
			if c.Log, err = logger(level); err != nil {
				return err
			}
			return cluster.RunAgent(cmd.Context(), c)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&c.Server, "server", "", "URL of the cluster's API, or its address")
	fs.StringVar(&c.Token, "token", os.Getenv("PROA_TOKEN"), "join token (default $PROA_TOKEN)")
	fs.StringVar(&c.DataDir, "data-dir", cluster.DefaultDataDir(), "where the node keeps its data")
	fs.StringVar(&c.NodeName, "node-name", "", "name of the node (default the host name)")
	fs.StringVar(&address, "node-address", "", "address of the node (default that of the default route)")
	fs.StringVar(&machine, "machine-address", "", "for a node in a namespace of the server's machine: the machine's address")
	fs.StringVar(&c.RuntimeEndpoint, "container-runtime-endpoint", "", "socket of an existing containerd or CRI-O (default: an own containerd)")
	fs.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}
