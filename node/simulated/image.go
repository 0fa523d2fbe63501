package simulated

import (
	"context"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageSize is the size of every simulated image: 64 MiB.
const imageSize = 64 << 20

func imageID(name string) string { return "sha256:" + newID("image", name) }

// ImageStatus implements runtime.Runtime. An image that is not there is nil without an error.
func (r *Runtime) ImageStatus(ctx context.Context, image string) (*v1.Image, error) {
	if err := r.fault("ImageStatus", image); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.images[image]; ok {
		return found, nil
	}
	for _, found := range r.images {
		if found.Id == image {
			return found, nil
		}
	}
	return nil, nil
}

// PullImage implements runtime.Runtime. Every image exists, unless Fault says otherwise.
func (r *Runtime) PullImage(ctx context.Context, image string, auth *v1.AuthConfig, sandbox *v1.PodSandboxConfig) (string, error) {
	if err := r.fault("PullImage", image); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.images[image]
	if !ok {
		found = &v1.Image{Id: imageID(image), RepoTags: []string{image}, Size: imageSize, Spec: &v1.ImageSpec{Image: image}}
		r.images[image] = found
	}
	return found.Id, nil
}

// ListImages implements runtime.Runtime.
func (r *Runtime) ListImages(context.Context) ([]*v1.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sortedBy(r.images), nil
}

// RemoveImage implements runtime.Runtime.
func (r *Runtime) RemoveImage(ctx context.Context, image string) error {
	if err := r.fault("RemoveImage", image); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, found := range r.images {
		if name == image || found.Id == image {
			delete(r.images, name)
		}
	}
	return nil
}

// ImageFsInfo implements runtime.Runtime.
func (r *Runtime) ImageFsInfo(context.Context) ([]*v1.FilesystemUsage, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []*v1.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &v1.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &v1.UInt64Value{Value: uint64(len(r.images)) * imageSize},
		InodesUsed: &v1.UInt64Value{},
	}}, nil
}
