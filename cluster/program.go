package cluster

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetProgram unmaps the pages of the program file that are in memory: the start touches most of the file, what follows
// little of it. Pages needed again come back from the system's cache one fault at a time; the machine can use the others.
func forgetProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		// start-end permissions offset device inode path
		fields := strings.Fields(line)
		if len(fields) < 6 || strings.Join(fields[5:], " ") != program || strings.Contains(fields[1], "w") {
			continue
		}
		first, last, _ := strings.Cut(fields[0], "-")
		start, err := strconv.ParseUint(first, 16, 64)
		if err != nil {
			return err
		}
		end, err := strconv.ParseUint(last, 16, 64)
		if err != nil {
			return err
		}
		// The mapping is of the file and not writable, so nothing but what the file says can be lost.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
