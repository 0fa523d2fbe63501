// Package cli holds what users type besides starting and stopping clusters: kubectl, built in.
package cli

import (
	"context"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

// Kubectl runs a kubectl command line and ends the process with kubectl's exit code when it fails.
func Kubectl(ctx context.Context, args []string) error {
	kubectl := cmd.NewDefaultKubectlCommandWithArgs(cmd.KubectlOptions{
		Arguments: append([]string{"kubectl"}, args...),
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
	})
	kubectl.SetArgs(args)
	if err := kubectl.ExecuteContext(ctx); err != nil {
		kubectlutil.CheckErr(err)
	}
	return nil
}
