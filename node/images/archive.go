package images

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// spool holds an archive's members by name while its parts are looked up in the order they point at each other, which
// is not the order they come in.
type spool struct {
	file    *os.File
	members map[string]section
}

type section struct{ offset, size int64 }

// spoolArchive copies an archive's members into a temporary file that has no name.
func spoolArchive(archive io.Reader) (*spool, error) {
	buffered := bufio.NewReaderSize(archive, 1<<16)
	var reader io.Reader = buffered
	if magic, err := buffered.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("read image archive: %w", err)
		}
		reader = unzipped
	}
	temporary, err := os.CreateTemp("", "proa-image-*")
	if err != nil {
		return nil, fmt.Errorf("spool image archive: %w", err)
	}
	s := &spool{file: temporary, members: map[string]section{}}
	if err := errors.Join(os.Remove(temporary.Name()), s.fill(tar.NewReader(reader))); err != nil {
		s.close()
		return nil, fmt.Errorf("read image archive: %w", err)
	}
	return s, nil
}

func (s *spool) close() { _ = s.file.Close() }

func (s *spool) fill(reader *tar.Reader) error {
	var offset int64
	links := map[string]string{}
	for {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeReg:
			n, err := io.Copy(s.file, reader)
			if err != nil {
				return err
			}
			s.members[name] = section{offset, n}
			offset += n
		case tar.TypeSymlink: // docker save links layers that several images share
			links[name] = path.Join(path.Dir(name), header.Linkname)
		case tar.TypeLink:
			links[name] = path.Clean(header.Linkname)
		}
	}
	for name, target := range links {
		if member, ok := s.members[target]; ok {
			s.members[name] = member
		}
	}
	return nil
}

func (s *spool) read(name string) ([]byte, error) {
	member, ok := s.members[name]
	if !ok {
		return nil, fmt.Errorf("image archive has no %s", name)
	}
	if member.size > 8<<20 {
		return nil, fmt.Errorf("%s of image archive has %d bytes", name, member.size)
	}
	data := make([]byte, member.size)
	_, err := s.file.ReadAt(data, member.offset)
	return data, err
}

func (s *spool) open(name string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		member, ok := s.members[name]
		if !ok {
			return nil, fmt.Errorf("image archive has no %s", name)
		}
		return io.NopCloser(io.NewSectionReader(s.file, member.offset, member.size)), nil
	}
}

// images finds the archive's images by its OCI layout, or else by Docker's manifest.json.
func (s *spool) images() ([]imageContent, error) {
	if _, ok := s.members["index.json"]; ok {
		return s.ociImages()
	}
	if _, ok := s.members["manifest.json"]; ok {
		return s.dockerImages()
	}
	return nil, errors.New("image archive has neither index.json nor manifest.json")
}

func (s *spool) ociImages() ([]imageContent, error) {
	data, err := s.read("index.json")
	if err != nil {
		return nil, err
	}
	var index manifest
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("read index.json of image archive: %w", err)
	}
	var out []imageContent
	for _, entry := range index.Manifests {
		name := entry.Annotations["io.containerd.image.name"]
		if name == "" {
			name = entry.Annotations["org.opencontainers.image.ref.name"]
		}
		if name == "" {
			continue // attestations and other images nobody can ask for
		}
		image := imageContent{name: normalize(name), target: entry}
		if image.blobs, err = s.walk(entry, nil); err != nil {
			return nil, fmt.Errorf("read image %s of archive: %w", name, err)
		}
		out = append(out, image)
	}
	if len(out) == 0 {
		return nil, errors.New("image archive has no image with a name")
	}
	return out, nil
}

// walk collects what the descriptor points at, and then the descriptor's own content.
func (s *spool) walk(d descriptor, blobs []blob) ([]blob, error) {
	name := "blobs/" + strings.Replace(d.Digest, ":", "/", 1)
	if _, ok := s.members[name]; !ok {
		if d.Platform != nil {
			return blobs, nil // an archive of some of an index's platforms
		}
		return nil, fmt.Errorf("image archive has no %s", name)
	}
	b := blob{descriptor: d, open: s.open(name)}
	switch d.MediaType {
	case mediaIndex, mediaDockerList, mediaManifest, mediaDockerManifest:
		data, err := s.read(name)
		if err != nil {
			return nil, err
		}
		var m manifest
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		children := append(append([]descriptor{}, m.Layers...), m.Manifests...)
		if m.Config != nil {
			children = append(children, *m.Config)
		}
		for _, child := range children {
			if blobs, err = s.walk(child, blobs); err != nil {
				return nil, err
			}
		}
		b.labels = childLabels(m)
	}
	return append(blobs, b), nil
}

// dockerImages makes manifests for an archive of `docker save`, which has configurations and layers but no manifests.
func (s *spool) dockerImages() ([]imageContent, error) {
	data, err := s.read("manifest.json")
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("read manifest.json of image archive: %w", err)
	}
	var out []imageContent
	for _, entry := range entries {
		configData, err := s.read(path.Clean(entry.Config))
		if err != nil {
			return nil, err
		}
		config := bytesBlob(mediaConfig, configData)
		m := manifest{SchemaVersion: 2, MediaType: mediaManifest, Config: &config.descriptor}
		blobs := []blob{config}
		for _, name := range entry.Layers {
			layer, err := s.layer(path.Clean(name))
			if err != nil {
				return nil, err
			}
			blobs = append(blobs, layer)
			m.Layers = append(m.Layers, layer.descriptor)
		}
		top := bytesBlob(mediaManifest, marshal(m))
		top.labels = childLabels(m)
		for _, tag := range entry.RepoTags {
			out = append(out, imageContent{name: normalize(tag), target: top.descriptor, blobs: append(blobs[:len(blobs):len(blobs)], top)})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("image archive has no image with a name")
	}
	return out, nil
}
