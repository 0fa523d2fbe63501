package main

import (
	"net"

	"github.com/spf13/cobra"

	"proa/node/images"
)

// demoCommand is the program of the demo image, which holds this binary.
func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "demo",
		Short:  "Serve the demo web page",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := net.Listen("tcp", ":8080")
			if err != nil {
				return err
			}
			return images.ServeDemo(cmd.Context(), l)
		},
	}
}
