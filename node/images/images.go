// Package images puts container images into containerd's store without a registry: archives of the OCI image layout or of
// `docker save`, and the two images that come with the binary, pause and demo. It speaks containerd's own content and
// image services, which every containerd since 1.0 offers on the socket that also serves CRI.
package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc/metadata"

	"proa/node/cri"
)

// Names of the images that come with the binary.
const (
	PauseImage = "proa.local/pause:1"
	DemoImage  = "proa.local/demo:latest"
)

// containerNamespace is where containerd's CRI service looks for images.
const containerNamespace = "k8s.io"

// leaseDuration protects content from garbage collection while it is imported.
const leaseDuration = time.Hour

// Import reads an image archive, compressed with gzip or not, into the containerd behind the socket and returns the names
// of its images. Content that containerd has already is not written again.
func Import(ctx context.Context, socket string, archive io.Reader) ([]string, error) {
	spool, err := spoolArchive(archive)
	if err != nil {
		return nil, err
	}
	defer spool.close()
	images, err := spool.images()
	if err != nil {
		return nil, err
	}
	return write(ctx, socket, images)
}

// ImportFile is Import of the archive at the path.
func ImportFile(ctx context.Context, socket, path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := Import(ctx, socket, file)
	if err != nil {
		return names, fmt.Errorf("import %s: %w", path, err)
	}
	return names, nil
}

// ImportPause puts the pause image of this machine's architecture into containerd.
func ImportPause(ctx context.Context, socket string) error {
	image, err := pauseImage()
	if err != nil {
		return err
	}
	_, err = write(ctx, socket, []imageContent{image})
	return err
}

// ImportProgram puts an image into containerd whose only file is the program at the path, as /name, which is its
// entrypoint followed by args. The program must be linked statically.
func ImportProgram(ctx context.Context, socket, image, path string, args ...string) error {
	img, err := programImage(image, path, args)
	if err != nil {
		return err
	}
	_, err = write(ctx, socket, []imageContent{img})
	return err
}

// ImportDemo puts the demo image into containerd. Its one layer is the running binary itself, streamed from
// /proc/self/exe, with the subcommand "demo" as entrypoint (see ServeDemo): a web page to look at costs the binary
// nothing, and containerd's store one more copy of a file that is already in the page cache.
func ImportDemo(ctx context.Context, socket string) error {
	return ImportProgram(ctx, socket, DemoImage, "/proc/self/exe", "demo")
}

// write stores images under a lease and names them.
func write(ctx context.Context, socket string, images []imageContent) ([]string, error) {
	conn, err := cri.Connect(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", containerNamespace)
	w, err := newWriter(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer w.release(ctx)
	var names []string
	for _, image := range images {
		if err := w.image(w.leased(ctx), image); err != nil {
			return names, fmt.Errorf("store image %s: %w", image.name, err)
		}
		names = append(names, image.name)
	}
	return names, awaitCRI(ctx, conn, names)
}

func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of strings and numbers only
	}
	return data
}
