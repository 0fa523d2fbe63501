// Package runtime is the seam between the node agent and what runs containers. Its messages are those of the container
// runtime interface (CRI v1), so that a real runtime is a thin adapter and the simulated one (for hollow nodes and tests)
// speaks the same contract.
package runtime

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime runs sandboxes, containers and images. It is safe for concurrent use. Errors keep their gRPC status codes
// (NotFound and so on) as google.golang.org/grpc/status reads them.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.RuntimeStatus, error)

	RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)

	CreateContainer(ctx context.Context, sandbox string, config *cri.ContainerConfig, sandboxConfig *cri.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal and, once timeout has passed, kills.
	StopContainer(ctx context.Context, id string, timeout time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
	ReopenContainerLog(ctx context.Context, id string) error

	// ExecSync runs a command to its end, for probes and hooks.
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// Exec, Attach and PortForward return the URL of a streaming server of the runtime.
	Exec(ctx context.Context, req *cri.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *cri.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *cri.PortForwardRequest) (url string, err error)

	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)
	ListPodSandboxStats(ctx context.Context, filter *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error)

	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string, err error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
	RemoveImage(ctx context.Context, image string) error
	ImageFsInfo(ctx context.Context) ([]*cri.FilesystemUsage, error)

	// Events calls handle for every change of a container or sandbox until ctx ends or the runtime goes away.
	Events(ctx context.Context, handle func(Event)) error
}

// Event says that a container or a sandbox changed; the receiver looks up the state. Container is empty when the
// sandbox itself changed.
type Event struct {
	Sandbox, Container string
}
