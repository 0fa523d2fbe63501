package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPauseProgram(t *testing.T) {
	for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		data, err := pauseProgram(architecture)
		if err != nil {
			t.Fatal(err)
		}
		file, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", architecture, err)
		}
		if file.Machine != machine || len(file.Progs) != 1 || file.Progs[0].Filesz != uint64(len(data)) {
			t.Errorf("%s: machine %v, segments %v", architecture, file.Machine, file.Progs)
		}
	}
}

// TestPauseRuns starts the program and ends it by a signal.
func TestPauseRuns(t *testing.T) {
	data, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "pause")
	if err := os.WriteFile(path, data, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Fatalf("pause ends by itself: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("pause ends with %v, want success", err)
		}
	case <-time.After(5 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("pause does not end by SIGTERM")
	}
}

func TestNormalize(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":                       "docker.io/library/nginx:latest",
		"nginx:1.27":                  "docker.io/library/nginx:1.27",
		"grafana/grafana":             "docker.io/grafana/grafana:latest",
		"docker.io/nginx":             "docker.io/library/nginx:latest",
		"localhost/a":                 "localhost/a:latest",
		"registry.k8s.io/pause:3.9":   "registry.k8s.io/pause:3.9",
		"10.0.0.1:5000/a/b@sha256:aa": "10.0.0.1:5000/a/b@sha256:aa",
	} {
		if got := normalize(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// archive makes a tar of names and contents in turn.
func archive(t *testing.T, members ...string) io.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(members); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: members[i], Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(members[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, members[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func digestOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func TestArchives(t *testing.T) {
	layer, config := "the layer", `{"os":"linux"}`
	top := fmt.Sprintf(`{"schemaVersion":2,"config":{"mediaType":%q,"digest":"sha256:%s","size":%d},"layers":[{"mediaType":%q,"digest":"sha256:%s","size":%d}]}`,
		mediaConfig, digestOf(config), len(config), mediaLayer, digestOf(layer), len(layer))
	oci := []string{
		"index.json", fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":%q,"digest":"sha256:%s","size":%d,"annotations":{"io.containerd.image.name":"a/b:1"}},{"mediaType":%q,"digest":"sha256:00","size":1}]}`,
			mediaManifest, digestOf(top), len(top), mediaManifest),
		"blobs/sha256/" + digestOf(top), top, "blobs/sha256/" + digestOf(config), config, "blobs/sha256/" + digestOf(layer), layer,
	}
	docker := []string{"x/layer.tar", layer, "c.json", config, "manifest.json", `[{"Config":"c.json","RepoTags":["a/b:1"],"Layers":["x/layer.tar"]}]`}
	tests := []struct {
		name    string
		members []string
		fails   string
	}{
		{name: "oci layout", members: oci},
		{name: "docker save", members: docker},
		{name: "neither", members: []string{"readme", "x"}, fails: "neither index.json nor manifest.json"},
		{name: "content is missing", members: oci[:len(oci)-2], fails: "image archive has no blobs/sha256/" + digestOf(layer)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spool, err := spoolArchive(archive(t, test.members...))
			if err != nil {
				t.Fatal(err)
			}
			defer spool.close()
			images, err := spool.images()
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("error %v, want %s", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(images) != 1 || images[0].name != "docker.io/a/b:1" || len(images[0].blobs) != 3 {
				t.Fatalf("images %+v", images)
			}
			last := images[0].blobs[2]
			if last.Digest != images[0].target.Digest {
				t.Error("the manifest does not come last")
			}
			if got := last.labels["containerd.io/gc.ref.content.l.0"]; got != "sha256:"+digestOf(layer) {
				t.Errorf("manifest keeps layer %q", got)
			}
			for _, blob := range images[0].blobs {
				reader, err := blob.open()
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(reader)
				if err != nil || "sha256:"+digestOf(string(data)) != blob.Digest || int64(len(data)) != blob.Size {
					t.Errorf("content %s: %q, %v", blob.Digest, data, err)
				}
			}
		})
	}
}
