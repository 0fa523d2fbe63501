package cri

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageStatus implements runtime.Runtime. An image that is not there is nil without an error.
func (r *Runtime) ImageStatus(ctx context.Context, image string) (*v1.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.images.ImageStatus(ctx, &v1.ImageStatusRequest{Image: &v1.ImageSpec{Image: image, UserSpecifiedImage: image}})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case response.Image.GetId() == "":
		return nil, nil
	}
	return response.Image, nil
}

// PullImage implements runtime.Runtime. It takes as long as ctx lets it.
func (r *Runtime) PullImage(ctx context.Context, image string, auth *v1.AuthConfig, sandbox *v1.PodSandboxConfig) (string, error) {
	response, err := r.images.PullImage(ctx, &v1.PullImageRequest{
		Image:         &v1.ImageSpec{Image: image, UserSpecifiedImage: image, Annotations: sandbox.GetAnnotations()},
		Auth:          auth,
		SandboxConfig: sandbox,
	})
	if err != nil {
		return "", err
	}
	return response.ImageRef, nil
}

// ListImages implements runtime.Runtime.
func (r *Runtime) ListImages(ctx context.Context) ([]*v1.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.images.ListImages(ctx, &v1.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return response.Images, nil
}

// RemoveImage implements runtime.Runtime. Removing an image that is not there succeeds.
func (r *Runtime) RemoveImage(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.images.RemoveImage(ctx, &v1.RemoveImageRequest{Image: &v1.ImageSpec{Image: image}})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// ImageFsInfo implements runtime.Runtime.
func (r *Runtime) ImageFsInfo(ctx context.Context) ([]*v1.FilesystemUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.images.ImageFsInfo(ctx, &v1.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	return response.ImageFilesystems, nil
}
