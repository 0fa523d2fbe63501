package cri

import (
	"context"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer implements runtime.Runtime.
func (r *Runtime) CreateContainer(ctx context.Context, sandbox string, config *v1.ContainerConfig, sandboxConfig *v1.PodSandboxConfig) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sandboxTimeout)
	defer cancel()
	response, err := r.client.CreateContainer(ctx, &v1.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: sandboxConfig})
	if err != nil {
		return "", err
	}
	r.remember(response.ContainerId, sandbox)
	return response.ContainerId, nil
}

// StartContainer implements runtime.Runtime.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.client.StartContainer(ctx, &v1.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer implements runtime.Runtime.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout+callTimeout)
	defer cancel()
	// The message has whole seconds; a started second counts, so that a short grace is not none at all.
	seconds := int64((timeout + time.Second - 1) / time.Second)
	_, err := r.client.StopContainer(ctx, &v1.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

// RemoveContainer implements runtime.Runtime.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.client.RemoveContainer(ctx, &v1.RemoveContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	r.forget(id)
	return nil
}

// ContainerStatus implements runtime.Runtime.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*v1.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.ContainerStatus(ctx, &v1.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, err
	}
	return response.Status, nil
}

// ListContainers implements runtime.Runtime.
func (r *Runtime) ListContainers(ctx context.Context, filter *v1.ContainerFilter) ([]*v1.Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.ListContainers(ctx, &v1.ListContainersRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return response.Containers, nil
}

// UpdateContainerResources implements runtime.Runtime.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, resources *v1.LinuxContainerResources) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.client.UpdateContainerResources(ctx, &v1.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return err
}

// ReopenContainerLog implements runtime.Runtime.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.client.ReopenContainerLog(ctx, &v1.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ExecSync implements runtime.Runtime. A timeout of zero waits as long as ctx.
func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	if timeout > 0 {
		// The runtime ends the command at the timeout and says so; the call itself waits a little longer to hear it.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+10*time.Second)
		defer cancel()
	}
	response, err := r.client.ExecSync(ctx, &v1.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64((timeout + time.Second - 1) / time.Second)})
	if err != nil {
		return nil, nil, 0, err
	}
	return response.Stdout, response.Stderr, response.ExitCode, nil
}

// Exec implements runtime.Runtime.
func (r *Runtime) Exec(ctx context.Context, request *v1.ExecRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.Exec(ctx, request)
	if err != nil {
		return "", err
	}
	return response.Url, nil
}

// Attach implements runtime.Runtime.
func (r *Runtime) Attach(ctx context.Context, request *v1.AttachRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.Attach(ctx, request)
	if err != nil {
		return "", err
	}
	return response.Url, nil
}

// PortForward implements runtime.Runtime.
func (r *Runtime) PortForward(ctx context.Context, request *v1.PortForwardRequest) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.PortForward(ctx, request)
	if err != nil {
		return "", err
	}
	return response.Url, nil
}

// ListContainerStats implements runtime.Runtime.
func (r *Runtime) ListContainerStats(ctx context.Context, filter *v1.ContainerStatsFilter) ([]*v1.ContainerStats, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.ListContainerStats(ctx, &v1.ListContainerStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return response.Stats, nil
}

// ListPodSandboxStats implements runtime.Runtime.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, filter *v1.PodSandboxStatsFilter) ([]*v1.PodSandboxStats, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := r.client.ListPodSandboxStats(ctx, &v1.ListPodSandboxStatsRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	return response.Stats, nil
}
