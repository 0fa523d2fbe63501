package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"proa/cli"
	"proa/cluster"
)

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl [command]",
		Short:              "Run any kubectl command against the cluster",
		Long:               "Runs kubectl with the cluster's administrator kubeconfig, unless KUBECONFIG or --kubeconfig name another.",
		Example:            "  proa kubectl get pods -A\n  proa kubectl apply -f app.yaml",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getenv("KUBECONFIG") == "" {
				admin := filepath.Join(cluster.DefaultDataDir(), "admin.kubeconfig")
				if _, err := os.Stat(admin); err == nil {
					os.Setenv("KUBECONFIG", admin)
				}
			}
			return cli.Kubectl(cmd.Context(), args)
		},
	}
}
