package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"proa/cluster"
)

func imageCommand() *cobra.Command {
	var dir string
	load := &cobra.Command{
		Use:     "load ARCHIVE...",
		Short:   "Load image archives (docker save, OCI) into every node of this machine",
		Example: "  docker save web:1 -o web.tar && proa image load web.tar",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name at least one image archive" + seeHelp(cmd))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return cluster.LoadImages(cmd.Context(), dir, args, cmd.OutOrStdout())
		},
	}
	load.Flags().StringVar(&dir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	cmd := parent(&cobra.Command{Use: "image", Short: "Handle container images"})
	cmd.AddCommand(load)
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "proa %s (Kubernetes %s)\n", cluster.Version, cluster.KubernetesVersion)
			return err
		},
	}
}

func storeCommand() *cobra.Command {
	var dir string
	repair := &cobra.Command{
		Use:   "repair",
		Short: "Save what can be saved of a damaged store; the server must be down",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cluster.RepairStore(cmd.Context(), dir, cmd.OutOrStdout())
		},
	}
	repair.Flags().StringVar(&dir, "data-dir", cluster.DefaultDataDir(), "where the cluster lives")
	cmd := parent(&cobra.Command{Use: "store", Short: "Look after the cluster's data"})
	cmd.AddCommand(repair)
	return cmd
}
