package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"
)

// Media types of the OCI image specification, and of Docker's archives where they differ.
const (
	mediaIndex          = "application/vnd.oci.image.index.v1+json"
	mediaManifest       = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig         = "application/vnd.oci.image.config.v1+json"
	mediaLayer          = "application/vnd.oci.image.layer.v1.tar"
	mediaLayerGzip      = "application/vnd.oci.image.layer.v1.tar+gzip"
	mediaDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// descriptor points at content, as the OCI image specification has it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// manifest is an image manifest, or an index when it has Manifests.
type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType,omitempty"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

// imageConfig is the part of an image's configuration that the images made here need.
type imageConfig struct {
	Created      *time.Time     `json:"created,omitempty"`
	Architecture string         `json:"architecture"`
	OS           string         `json:"os"`
	Config       containerPlan  `json:"config"`
	RootFS       rootFS         `json:"rootfs"`
	History      []historyEntry `json:"history,omitempty"`
}

type containerPlan struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type historyEntry struct {
	CreatedBy string `json:"created_by,omitempty"`
}

// imageContent is an image ready to be written: a name, the descriptor of its manifest or index, and its content by digest in
// an order in which what is pointed at comes before what points.
type imageContent struct {
	name   string
	target descriptor
	blobs  []blob
}

// blob is one piece of content. labels keep what it points at from garbage collection.
type blob struct {
	descriptor
	open   func() (io.ReadCloser, error)
	labels map[string]string
}

func bytesBlob(mediaType string, data []byte) blob {
	sum := sha256.Sum256(data)
	return blob{
		descriptor: descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data))},
		open:       func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}
}
