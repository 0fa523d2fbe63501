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
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	var start, end uint64 // of the mapping that the lines are about, if it is one of the program that nobody writes to
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if !strings.HasSuffix(fields[0], ":") {
			// start-end permissions offset device inode path
			start, end = 0, 0
			if len(fields) < 6 || strings.Join(fields[5:], " ") != program || strings.Contains(fields[1], "w") {
				continue
			}
			first, last, _ := strings.Cut(fields[0], "-")
			if start, err = strconv.ParseUint(first, 16, 64); err != nil {
				return err
			}
			if end, err = strconv.ParseUint(last, 16, 64); err != nil {
				return err
			}
			continue
		}
		// Anonymous pages differ from the file: the loader has written addresses into them before it took the right to
		// write away. Without any, nothing but what the file says can be lost.
		if end == 0 || fields[0] != "Anonymous:" || fields[1] != "0" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(start), uintptr(end-start), unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
