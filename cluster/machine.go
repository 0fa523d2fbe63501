package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// claimName is an abstract socket: it belongs to a network namespace, as the interfaces, ports and packet rules of a node
// do, and goes with the process that holds it.
const claimName = "@proa-node"

// claimMachine makes the node whose folder is dir the only one in this network namespace, until ctx ends: two would take
// each other's ports, packet rules and cgroups.
func claimMachine(ctx context.Context, dir string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", claimName)
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("a node runs on this machine already, in %s; stop it with proa down, or start this cluster without one (--no-node)", machineOwner())
	}
	if err != nil {
		return fmt.Errorf("claim the machine: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_, _ = io.WriteString(c, dir) // whoever asked may have gone
			c.Close()
		}
	}()
	return nil
}

// machineOwner is the folder of the node that runs in this network namespace, or "".
func machineOwner() string {
	c, err := net.DialTimeout("unix", claimName, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	dir, err := io.ReadAll(io.LimitReader(c, 4096))
	if err != nil || len(dir) == 0 {
		return "another folder"
	}
	return string(dir)
}
