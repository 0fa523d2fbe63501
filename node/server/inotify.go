package server

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchDir reports changes in a directory until ctx ends. Changes that come while nobody receives are put together into
// one mask.
func watchDir(ctx context.Context, dir string) (<-chan uint32, error) {
	in, err := newInotify()
	if err != nil {
		return nil, err
	}
	if _, err := in.add(dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE); err != nil {
		_ = in.Close()
		return nil, err
	}
	out := make(chan uint32, 1)
	context.AfterFunc(ctx, func() { _ = in.Close() })
	go func() { // ends when ctx closes the file
		defer close(out)
		for {
			var mask uint32
			if in.read(func(_ int32, m uint32, _ string) { mask |= m }) != nil {
				return
			}
			select {
			case pending := <-out:
				mask |= pending
			default:
			}
			out <- mask
		}
	}()
	return out, nil
}

// inotify is the kernel's file notification, as a file that the runtime's poller waits for.
type inotify struct{ *os.File }

func newInotify() (inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return inotify{}, fmt.Errorf("open inotify: %w", err)
	}
	return inotify{os.NewFile(uintptr(fd), "inotify")}, nil
}

// add watches a path and returns the watch's number.
func (i inotify) add(path string, mask uint32) (int32, error) {
	conn, err := i.SyscallConn()
	if err != nil {
		return 0, err
	}
	var watch int
	var failure error
	if err := conn.Control(func(fd uintptr) { watch, failure = unix.InotifyAddWatch(int(fd), path, mask) }); err != nil {
		return 0, err
	}
	if failure != nil {
		return 0, fmt.Errorf("watch %s: %w", path, failure)
	}
	return int32(watch), nil
}

func (i inotify) remove(watch int32) {
	conn, err := i.SyscallConn()
	if err != nil {
		return
	}
	// A watch whose directory is gone has removed itself.
	_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(watch)) })
}

// read waits for changes and reports those that have come.
func (i inotify) read(report func(watch int32, mask uint32, name string)) error {
	var buffer [16 << 10]byte
	n, err := i.Read(buffer[:])
	if err != nil {
		return err
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buffer[at]))
		at += unix.SizeofInotifyEvent
		name := buffer[at : at+int(event.Len)]
		at += int(event.Len)
		for len(name) > 0 && name[len(name)-1] == 0 {
			name = name[:len(name)-1]
		}
		report(event.Wd, event.Mask, string(name))
	}
	return nil
}
