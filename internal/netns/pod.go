package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

// DialLocal connects to a port of the loopback addresses, IPv4 first, of the network namespace at the path.
func DialLocal(ctx context.Context, path string, port uint16) (net.Conn, error) {
	var conn net.Conn
	err := Do(path, func() error {
		var dialer net.Dialer
		var errs []error
		// Literal addresses, one at a time: net then opens the socket on this very thread.
		for _, host := range []string{"127.0.0.1", "::1"} {
			c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
			if err == nil {
				conn = c
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to connect to localhost:%d: %w", port, err)
	}
	return conn, nil
}

// Interface has the counters of a network interface.
type Interface struct {
	Name               string
	RxBytes, RxErrors  uint64
	TxBytes, TxErrors  uint64
	RxPackets, RxDrops uint64
	TxPackets, TxDrops uint64
}

// Interfaces reads the counters of the network interfaces, without the loopback, of the namespace at the path.
func Interfaces(path string) ([]Interface, error) {
	var out []Interface
	err := Do(path, func() error {
		// "thread-self" because the process as a whole is elsewhere.
		file, err := os.Open("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		defer file.Close()
		out, err = parseInterfaces(file)
		return err
	})
	return out, err
}

// parseInterfaces reads the format of /proc/net/dev: two lines of headings, then a line for each interface.
func parseInterfaces(r io.Reader) ([]Interface, error) {
	var out []Interface
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		name, rest, found := strings.Cut(scanner.Text(), ":")
		fields := strings.Fields(rest)
		name = strings.TrimSpace(name)
		if !found || len(fields) < 16 || name == "lo" {
			continue
		}
		var numbers [16]uint64
		for i := range numbers {
			number, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read counters of interface %s: %w", name, err)
			}
			numbers[i] = number
		}
		out = append(out, Interface{
			Name:    name,
			RxBytes: numbers[0], RxPackets: numbers[1], RxErrors: numbers[2], RxDrops: numbers[3],
			TxBytes: numbers[8], TxPackets: numbers[9], TxErrors: numbers[10], TxDrops: numbers[11],
		})
	}
	return out, scanner.Err()
}
