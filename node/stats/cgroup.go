package stats

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what a cgroup has used.
type Usage struct {
	CPU        uint64 // nanoseconds since the cgroup was made
	Memory     uint64 // bytes charged, page cache included
	WorkingSet uint64 // without the inactive part of the page cache
	RSS        uint64
	Limit      uint64 // of memory, 0 for none
	Faults     uint64
	Major      uint64 // faults that had to read
}

// ReadCgroup reads the use of a cgroup by its path below the root of cgroups, such as "/kubepods/burstable". mount is
// where cgroups are, normally /sys/fs/cgroup. Version 2 and version 1 with or without the hybrid's "unified" are read.
func ReadCgroup(mount, path string) (Usage, error) {
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return readV2(filepath.Join(mount, path))
	}
	return readV1(mount, path)
}

func readV2(dir string) (Usage, error) {
	cpu, err := keyed(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return Usage{}, err
	}
	memory, err := keyed(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: cpu["usage_usec"] * 1000, RSS: memory["anon"], Faults: memory["pgfault"], Major: memory["pgmajfault"]}
	u.Memory, err = number(filepath.Join(dir, "memory.current"))
	if errors.Is(err, os.ErrNotExist) {
		u.Memory, err = memory["anon"]+memory["file"], nil // the root cgroup has no such file
	}
	if err != nil {
		return Usage{}, err
	}
	if u.Limit, err = number(filepath.Join(dir, "memory.max")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Usage{}, err
	}
	u.WorkingSet = less(u.Memory, memory["inactive_file"])
	return u, nil
}

// unlimited is from where on a limit of version 1 means none: it is the largest number of whole pages.
const unlimited = 1 << 62

func readV1(mount, path string) (Usage, error) {
	var u Usage
	var err error
	for _, place := range []string{"cpuacct", "cpu,cpuacct"} {
		if u.CPU, err = number(filepath.Join(mount, place, path, "cpuacct.usage")); err == nil {
			break
		}
	}
	if err != nil {
		return u, err
	}
	dir := filepath.Join(mount, "memory", path)
	memory, err := keyed(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return u, err
	}
	if u.Memory, err = number(filepath.Join(dir, "memory.usage_in_bytes")); err != nil {
		return u, err
	}
	if u.Limit, err = number(filepath.Join(dir, "memory.limit_in_bytes")); err != nil {
		return u, err
	}
	if u.Limit >= unlimited {
		u.Limit = 0
	}
	u.WorkingSet = less(u.Memory, memory["total_inactive_file"])
	u.RSS, u.Faults, u.Major = memory["total_rss"], memory["total_pgfault"], memory["total_pgmajfault"]
	return u, nil
}

// less subtracts but does not go below zero: the two numbers are not read at one moment.
func less(a, b uint64) uint64 { return a - min(a, b) }

// number reads a file of one number; "max" is 0.
func number(path string) (uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return 0, nil
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return value, nil
}

// keyed reads a file of names and numbers.
func keyed(path string) (map[string]uint64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for scanner.Scan() {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 2 {
			continue
		}
		if value, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			out[strings.TrimSuffix(fields[0], ":")] = value
		}
	}
	return out, scanner.Err()
}
