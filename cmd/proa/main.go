// Command proa is a Kubernetes cluster in one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"proa/cluster"
)

func main() {
	keepFiles()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "proa: "+err.Error())
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := parent(&cobra.Command{
		Use:           "proa",
		Short:         "A Kubernetes cluster in one binary",
		Long:          "proa runs a Kubernetes " + cluster.KubernetesVersion + " cluster on this machine: API server, controllers, scheduler,\nnode, service network and DNS in one process, with containerd at its side.",
		Example:       "  proa up                          # start a cluster and point kubectl at it\n  proa kubectl get pods -A         # any kubectl command\n  proa up --nodes 3                # three real nodes on this machine\n  proa up --in-memory --no-node    # API, controllers and scheduler only; no root needed\n  proa down                        # stop it, leave nothing behind",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       cluster.Version,
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return errors.New(err.Error() + seeHelp(cmd)) })
	root.AddCommand(upCommand(), downCommand(), statusCommand(), serverCommand(), agentCommand(), tokenCommand(),
		kubectlCommand(), imageCommand(), storeCommand(), versionCommand(), demoCommand())
	return root
}

// parent makes a command that only has others below it: alone it shows its help.
func parent(cmd *cobra.Command) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		cmd.SuggestionsMinimumDistance = 2
		if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
			return fmt.Errorf("unknown command %q; did you mean: %s %s", args[0], cmd.CommandPath(), s[0])
		}
		return fmt.Errorf("unknown command %q%s", args[0], seeHelp(cmd))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument such as %q%s", cmd.CommandPath(), args[0], seeHelp(cmd))
	}
	return nil
}

func seeHelp(cmd *cobra.Command) string { return "; see: " + cmd.CommandPath() + " --help" }

// keepFiles keeps the files that the caller has left open from the programs that are started here and live on, such as
// containerd: they would hold the caller's locks and pipes.
func keepFiles() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // kernels before 5.11 do not know it
}
