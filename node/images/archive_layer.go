package images

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
)

// layer describes a layer of a `docker save` archive, which says neither its digest nor whether it is compressed.
func (s *spool) layer(name string) (blob, error) {
	reader, err := s.open(name)()
	if err != nil {
		return blob{}, err
	}
	defer reader.Close()
	var magic [2]byte
	if _, err := io.ReadFull(reader, magic[:]); err != nil {
		return blob{}, err
	}
	mediaType := mediaLayer
	if magic == [2]byte{0x1f, 0x8b} {
		mediaType = mediaLayerGzip
	}
	hash := sha256.New()
	hash.Write(magic[:])
	if _, err := io.Copy(hash, reader); err != nil {
		return blob{}, err
	}
	digest := "sha256:" + hex.EncodeToString(hash.Sum(nil))
	return blob{descriptor: descriptor{MediaType: mediaType, Digest: digest, Size: s.members[name].size}, open: s.open(name)}, nil
}

// normalize completes an image name as container runtimes do: docker.io and library for short names, latest for none.
func normalize(name string) string {
	host, rest, found := strings.Cut(name, "/")
	if !found || !(strings.ContainsAny(host, ".:") || host == "localhost") {
		host, rest = "docker.io", name
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	if !strings.ContainsAny(rest, ":@") {
		rest += ":latest"
	}
	return host + "/" + rest
}
