package images

import (
	"archive/tar"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
)

// file is the one file of an image made here.
type file struct {
	name string
	size int64
	open func() (io.ReadCloser, error)
}

// programImage makes an image of the static program at the path.
func programImage(image, program string, args []string) (imageContent, error) {
	info, err := os.Stat(program)
	if err != nil {
		return imageContent{}, err
	}
	target := program
	if resolved, err := os.Readlink(program); err == nil {
		target = resolved
	}
	if err := checkStatic(program); err != nil {
		return imageContent{}, err
	}
	name := path.Base(target)
	return singleFile(image,
		file{name: name, size: info.Size(), open: func() (io.ReadCloser, error) { return os.Open(program) }},
		containerPlan{Entrypoint: append([]string{"/" + name}, args...), WorkingDir: "/", Env: []string{"PATH=/"}})
}

// checkStatic refuses a program that needs a loader: an image of it alone could not run.
func checkStatic(program string) error {
	binary, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read program %s: %w", program, err)
	}
	defer binary.Close()
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP {
			return fmt.Errorf("program %s is linked dynamically and cannot be an image of its own", program)
		}
	}
	return nil
}

// singleFile makes an image of one layer with one executable file. The layer is streamed, once to learn its digest and
// once to be stored; the same file always gives the same digest.
func singleFile(name string, f file, plan containerPlan) (imageContent, error) {
	hash := sha256.New()
	size, err := writeLayer(hash, f)
	if err != nil {
		return imageContent{}, fmt.Errorf("make layer of image %s: %w", name, err)
	}
	digest := "sha256:" + hex.EncodeToString(hash.Sum(nil))
	layer := blob{
		descriptor: descriptor{MediaType: mediaLayer, Digest: digest, Size: size},
		open: func() (io.ReadCloser, error) {
			reader, writer := io.Pipe()
			go func() {
				_, err := writeLayer(writer, f)
				writer.CloseWithError(err) // ends when the reader has read all or closed
			}()
			return reader, nil
		},
		labels: map[string]string{"containerd.io/uncompressed": digest},
	}
	config := bytesBlob(mediaConfig, marshal(imageConfig{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		Config:       plan,
		RootFS:       rootFS{Type: "layers", DiffIDs: []string{digest}},
	}))
	top := bytesBlob(mediaManifest, marshal(manifest{
		SchemaVersion: 2, MediaType: mediaManifest, Config: &config.descriptor, Layers: []descriptor{layer.descriptor},
	}))
	top.labels = childLabels(manifest{Config: &config.descriptor, Layers: []descriptor{layer.descriptor}})
	return imageContent{name: name, target: top.descriptor, blobs: []blob{layer, config, top}}, nil
}

func writeLayer(w io.Writer, f file) (int64, error) {
	counter := &countingWriter{w: w}
	out := tar.NewWriter(counter)
	for _, dir := range []string{"dev/", "etc/", "proc/", "sys/", "tmp/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return 0, err
		}
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o755, Size: f.size}); err != nil {
		return 0, err
	}
	reader, err := f.open()
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	if _, err := io.Copy(out, reader); err != nil {
		return 0, err
	}
	if err := out.Close(); err != nil {
		return 0, err
	}
	return counter.n, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// childLabels are the labels by which containerd's garbage collector follows a manifest or index to its content.
func childLabels(m manifest) map[string]string {
	labels := map[string]string{}
	if m.Config != nil {
		labels["containerd.io/gc.ref.content.config"] = m.Config.Digest
	}
	for i, layer := range m.Layers {
		labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = layer.Digest
	}
	for i, child := range m.Manifests {
		labels[fmt.Sprintf("containerd.io/gc.ref.content.m.%d", i)] = child.Digest
	}
	return labels
}
