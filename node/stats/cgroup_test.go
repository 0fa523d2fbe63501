package stats

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadCgroup(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  Usage
	}{
		{"version 2", map[string]string{
			"cgroup.controllers": "cpu memory",
			"a/cpu.stat":         "usage_usec 1500\nuser_usec 1000\n",
			"a/memory.stat":      "anon 100\nfile 400\ninactive_file 300\npgfault 7\npgmajfault 2\n",
			"a/memory.current":   "600\n",
			"a/memory.max":       "1000\n",
		}, Usage{CPU: 1500000, Memory: 600, WorkingSet: 300, RSS: 100, Limit: 1000, Faults: 7, Major: 2}},
		{"version 2 without limit, cache counted later than use", map[string]string{
			"cgroup.controllers": "", "a/cpu.stat": "usage_usec 1\n", "a/memory.stat": "inactive_file 900\n",
			"a/memory.current": "600\n", "a/memory.max": "max\n",
		}, Usage{CPU: 1000, Memory: 600}},
		{"version 1", map[string]string{
			"cpuacct/a/cpuacct.usage":        "1500\n",
			"memory/a/memory.stat":           "rss 1\ntotal_rss 100\ntotal_inactive_file 300\ntotal_pgfault 7\ntotal_pgmajfault 2\n",
			"memory/a/memory.usage_in_bytes": "600\n",
			"memory/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, Usage{CPU: 1500, Memory: 600, WorkingSet: 300, RSS: 100, Faults: 7, Major: 2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ReadCgroup(root, "/a")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("usage (-want +got):\n%s", diff)
			}
			if _, err := ReadCgroup(root, "/b"); err == nil {
				t.Error("a cgroup that is not there is read")
			}
		})
	}
}
