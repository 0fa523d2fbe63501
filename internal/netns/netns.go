// Package netns does things inside network namespaces of this machine: those of pods, and those of several nodes on one
// machine. A path names a namespace (/run/netns/x, /proc/1/ns/net); the empty path means the caller's own.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f with the calling thread in the network namespace at the path, or where it is when the path is empty. f must
// not hand its work to other goroutines.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	done := make(chan error)
	go func() {
		// Never unlocked: a thread that has been elsewhere ends with its goroutine instead of serving others.
		runtime.LockOSThread()
		done <- func() error {
			namespace, err := os.Open(path)
			if err != nil {
				return fmt.Errorf("open network namespace: %w", err)
			}
			defer namespace.Close()
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter network namespace %s: %w", path, err)
			}
			return f()
		}()
	}()
	return <-done
}

// Listen opens a stream listener on a literal address in the namespace. A socket stays where it was made, so the listener may be
// used from everywhere.
func Listen(ctx context.Context, path, network, address string) (net.Listener, error) {
	var out net.Listener
	err := Do(path, func() (err error) {
		out, err = (&net.ListenConfig{}).Listen(ctx, network, address)
		return err
	})
	return out, err
}

// ListenPacket is Listen for datagrams.
func ListenPacket(ctx context.Context, path, network, address string) (net.PacketConn, error) {
	var out net.PacketConn
	err := Do(path, func() (err error) {
		out, err = (&net.ListenConfig{}).ListenPacket(ctx, network, address)
		return err
	})
	return out, err
}

// Sysctl sets a kernel setting of the namespace, named by its path below /proc/sys.
func Sysctl(path, name, value string) error {
	return Do(path, func() error {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	})
}
