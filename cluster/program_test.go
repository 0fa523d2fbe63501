package cluster

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestForgetProgram(t *testing.T) {
	resident := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(status)
		if m == nil {
			t.Fatalf("no RssFile in %s", status)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := resident()
	if err := forgetProgram(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after >= before*3/4 {
		t.Errorf("%d kB of files are in memory, %d kB were before", after, before)
	}
}
