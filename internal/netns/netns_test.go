package netns

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseInterfaces(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:      10       1    0    0    0     0          0         0       10       1    0    0    0     0       0          0
  eth0:    1000      20    3    4    0     0          0         0     2000      30    5    6    0     0       0          0
`
	got, err := parseInterfaces(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Interface{{Name: "eth0", RxBytes: 1000, RxPackets: 20, RxErrors: 3, RxDrops: 4, TxBytes: 2000, TxPackets: 30, TxErrors: 5, TxDrops: 6}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}

// TestDo enters a namespace without interfaces and sees that this test itself stays outside.
func TestDo(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	path := make(chan string)
	leave := make(chan struct{})
	defer close(leave)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes with the namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			path <- ""
			return
		}
		path <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		<-leave
	}()
	namespace := <-path
	if namespace == "" {
		t.Skip("network namespaces cannot be made here")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	if conn, err := DialLocal(t.Context(), namespace, port); err == nil {
		_ = conn.Close()
		t.Error("dial inside the other namespace reaches this one's port")
	}
	conn, err := DialLocal(t.Context(), "", port)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := Do(t.TempDir()+"/none", func() error { return nil }); err == nil {
		t.Error("a namespace that is not there is entered")
	}
}
