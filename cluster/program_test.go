package cluster

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestForgetProgram checks that a program linked with C's library lives on, whose addresses the loader has filled in, and
// that there is less of it in memory.
func TestForgetProgram(t *testing.T) {
	before := residentFile(t)
	if err := forgetProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentFile(t); after >= before {
		t.Errorf("%d kB of files are resident, %d before", after, before)
	}
	t.Setenv("PROA_TEST_FORGET", "1") // asks C's library
}

// residentFile is the size in kB of the pages of files in memory.
func residentFile(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			size, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return size
		}
	}
	t.Fatal("no RssFile")
	return 0
}
