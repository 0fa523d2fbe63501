package images

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	leases "github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chunkSize is how much content goes into one message; containerd accepts 16 MiB.
const chunkSize = 1 << 20

// writer stores images in containerd. Until release its content is safe from garbage collection.
type writer struct {
	content content.ContentClient
	images  images.ImagesClient
	leases  leases.LeasesClient
	lease   string
}

func newWriter(ctx context.Context, conn *grpc.ClientConn) (*writer, error) {
	w := &writer{
		content: content.NewContentClient(conn),
		images:  images.NewImagesClient(conn),
		leases:  leases.NewLeasesClient(conn),
	}
	now := time.Now()
	response, err := w.leases.Create(ctx, &leases.CreateRequest{
		ID:     "proa-import-" + strconv.FormatInt(now.UnixNano(), 36),
		Labels: map[string]string{"containerd.io/gc.expire": now.Add(leaseDuration).UTC().Format(time.RFC3339)},
	}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("take a lease in containerd: %w", err)
	}
	w.lease = response.GetLease().GetID()
	return w, nil
}

func (w *writer) leased(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-lease", w.lease)
}

func (w *writer) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// A lease that cannot be given back expires.
	_, _ = w.leases.Delete(ctx, &leases.DeleteRequest{ID: w.lease})
}

// image writes an image's content and then its name, over an older image of that name.
func (w *writer) image(ctx context.Context, image imageContent) error {
	for _, blob := range image.blobs {
		if err := w.blob(ctx, blob); err != nil {
			return fmt.Errorf("write content %s: %w", blob.Digest, err)
		}
	}
	record := &images.Image{
		Name:   image.name,
		Labels: map[string]string{"io.cri-containerd.image": "managed"},
		Target: &types.Descriptor{MediaType: image.target.MediaType, Digest: image.target.Digest, Size: image.target.Size},
	}
	_, err := w.images.Create(ctx, &images.CreateImageRequest{Image: record})
	if status.Code(err) == codes.AlreadyExists {
		_, err = w.images.Update(ctx, &images.UpdateImageRequest{Image: record})
	}
	return err
}

// blob writes content unless containerd has it.
func (w *writer) blob(ctx context.Context, b blob) error {
	if _, err := w.content.Info(ctx, &content.InfoRequest{Digest: b.Digest}); err == nil {
		return nil
	}
	reader, err := b.open()
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.content.Write(ctx)
	if err != nil {
		return err
	}
	ref := "proa-import-" + w.lease + "-" + b.Digest
	request := func(action content.WriteAction, offset int64, data []byte) (*content.WriteContentResponse, error) {
		if err := stream.Send(&content.WriteContentRequest{
			Action: action, Ref: ref, Total: b.Size, Expected: b.Digest, Offset: offset, Data: data, Labels: b.labels,
		}); err != nil && err != io.EOF {
			return nil, err
		}
		return stream.Recv() // has the reason when Send met the end of the stream
	}
	var offset int64
	buffer := make([]byte, min(chunkSize, b.Size))
	for offset < b.Size {
		n, err := io.ReadFull(reader, buffer[:min(int64(len(buffer)), b.Size-offset)])
		if err != nil {
			return fmt.Errorf("read at %d: %w", offset, err)
		}
		if _, err := request(content.WriteAction_WRITE, offset, buffer[:n]); err != nil {
			return ignoreExisting(err)
		}
		offset += int64(n)
	}
	_, err = request(content.WriteAction_COMMIT, offset, nil)
	return ignoreExisting(err)
}

func ignoreExisting(err error) error {
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

// awaitCRI waits until containerd's CRI service lists the images: it learns of them by an event, a moment later.
func awaitCRI(ctx context.Context, conn *grpc.ClientConn, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := v1.NewImageServiceClient(conn)
	for _, name := range names {
		for delay := 2 * time.Millisecond; ; delay = min(2*delay, 200*time.Millisecond) {
			response, err := client.ImageStatus(ctx, &v1.ImageStatusRequest{Image: &v1.ImageSpec{Image: name}})
			if err == nil && response.GetImage().GetId() != "" {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("image %s does not appear in the runtime: %w", name, context.Cause(ctx))
			case <-time.After(delay):
			}
		}
	}
	return nil
}
