// Command proa is a Kubernetes cluster in one binary.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"proa/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "proa: "+err.Error())
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "proa",
		Short:         "A Kubernetes cluster in one binary",
		Long:          "proa runs a Kubernetes " + cluster.KubernetesVersion + " cluster on this machine: API server, controllers, scheduler,\nnode, service network and DNS in one process, with containerd at its side.",
		Example:       "  proa up                          # start a cluster and point kubectl at it\n  proa kubectl get pods -A         # any kubectl command\n  proa up --nodes 3                # three real nodes on this machine\n  proa up --in-memory --no-node    # API, controllers and scheduler only; no root needed\n  proa down                        # stop it, leave nothing behind",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), serverCommand(), agentCommand(), tokenCommand(),
		kubectlCommand(), imageCommand(), storeCommand(), versionCommand(), demoCommand())
	return root
}
