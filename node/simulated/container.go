package simulated

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// container holds what the runtime reports of a container, not its whole configuration.
type container struct {
	id          string
	sandbox     *sandbox
	metadata    *v1.ContainerMetadata
	image       *v1.ImageSpec
	imageRef    string
	labels      map[string]string
	annotations map[string]string
	logPath     string
	mounts      []*v1.Mount
	resources   *v1.LinuxContainerResources

	created, started, finished int64
	state                      v1.ContainerState
	exitCode                   int32
	reason                     string

	timer *time.Timer   // of the container's own end, if it has one
	ended chan struct{} // closed at the end, made when somebody waits
}

// CreateContainer implements runtime.Runtime.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *v1.ContainerConfig, sandboxConfig *v1.PodSandboxConfig) (string, error) {
	meta := config.GetMetadata()
	if meta == nil {
		return "", status.Error(codes.InvalidArgument, "container config must include metadata")
	}
	if err := r.fault("CreateContainer", meta.Name); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxes[sandboxID]
	if !ok || s.stopped {
		return "", notFound("sandbox", sandboxID)
	}
	for _, other := range r.containers {
		if other.sandbox == s && other.metadata.Name == meta.Name && other.metadata.Attempt == meta.Attempt {
			return "", status.Errorf(codes.AlreadyExists, "failed to reserve container name %q: name is reserved for %q", meta.Name, other.id)
		}
	}
	image := config.GetImage()
	c := &container{
		id:          newID("container", s.id, meta.Name, fmt.Sprint(meta.Attempt)),
		sandbox:     s,
		metadata:    meta,
		image:       image,
		imageRef:    imageID(image.GetImage()),
		labels:      config.Labels,
		annotations: config.Annotations,
		mounts:      config.Mounts,
		resources:   config.GetLinux().GetResources(),
		created:     time.Now().UnixNano(),
		state:       v1.ContainerState_CONTAINER_CREATED,
	}
	if directory := sandboxConfig.GetLogDirectory(); directory != "" && config.LogPath != "" {
		c.logPath = directory + "/" + config.LogPath
	}
	r.containers[c.id] = c
	r.publishLocked(runtime.Event{Sandbox: s.id, Container: c.id})
	return c.id, nil
}

// StartContainer implements runtime.Runtime.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	c, ok := r.containers[id]
	r.mu.Unlock()
	if !ok {
		return notFound("container", id)
	}
	if err := r.fault("StartContainer", c.metadata.Name); err != nil {
		return err
	}
	delay, err := duration(c.setting(AnnotationStartAfter))
	if err != nil {
		return err
	}
	lifetime, err := duration(c.setting(AnnotationExitAfter))
	if err != nil {
		return err
	}
	exit, err := code(c.setting(AnnotationExitCode))
	if err != nil {
		return err
	}
	if delay > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.containers[id] != c || c.state != v1.ContainerState_CONTAINER_CREATED {
		return status.Errorf(codes.FailedPrecondition, "container %q is not in created state", id)
	}
	c.state, c.started = v1.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.publishLocked(runtime.Event{Sandbox: c.sandbox.id, Container: id})
	if c.setting(AnnotationExitAfter) != "" {
		c.timer = time.AfterFunc(lifetime, func() { _ = r.Exit(id, exit) })
	}
	return nil
}

// StopContainer implements runtime.Runtime.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout time.Duration) error {
	r.mu.Lock()
	c, ok := r.containers[id]
	if !ok || c.state != v1.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return nil
	}
	needs, err := duration(c.setting(AnnotationStopAfter))
	if err != nil {
		r.mu.Unlock()
		return err
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	ended := c.ended
	r.mu.Unlock()
	if err := r.fault("StopContainer", c.metadata.Name); err != nil {
		return err
	}
	exit := int32(0)
	if needs > timeout {
		needs, exit = timeout, 137
	}
	if needs > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return nil
		case <-time.After(needs):
		}
	}
	return r.Exit(id, exit)
}

// exitLocked ends a container unless it has ended.
func (r *Runtime) exitLocked(c *container, code int32, reason string) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.state != v1.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state, c.finished = v1.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	c.exitCode, c.reason = code, reason
	if c.ended != nil {
		close(c.ended)
		c.ended = nil
	}
	r.publishLocked(runtime.Event{Sandbox: c.sandbox.id, Container: c.id})
}

// RemoveContainer implements runtime.Runtime.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.containers[id]; ok {
		r.exitLocked(c, 137, "Error")
		r.removeLocked(c)
	}
	return nil
}

func (r *Runtime) removeLocked(c *container) {
	delete(r.containers, c.id)
	r.publishLocked(runtime.Event{Sandbox: c.sandbox.id, Container: c.id})
}

// ContainerStatus implements runtime.Runtime.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*v1.ContainerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return nil, notFound("container", id)
	}
	return c.status(), nil
}

func (c *container) status() *v1.ContainerStatus {
	out := &v1.ContainerStatus{
		Id: c.id, Metadata: c.metadata, State: c.state, CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished,
		ExitCode: c.exitCode, Reason: c.reason, Image: c.image, ImageRef: c.imageRef, ImageId: c.imageRef,
		Labels: c.labels, Annotations: c.annotations, Mounts: c.mounts, LogPath: c.logPath,
	}
	if c.resources != nil {
		out.Resources = &v1.ContainerResources{Linux: c.resources}
	}
	return out
}

// ListContainers implements runtime.Runtime.
func (r *Runtime) ListContainers(ctx context.Context, filter *v1.ContainerFilter) ([]*v1.Container, error) {
	if err := r.fault("ListContainers", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*v1.Container
	for _, c := range sortedBy(r.containers) {
		if (filter.GetId() != "" && filter.Id != c.id) || (filter.GetPodSandboxId() != "" && filter.PodSandboxId != c.sandbox.id) ||
			(filter.GetState() != nil && filter.State.State != c.state) || !matches(filter.GetLabelSelector(), c.labels) {
			continue
		}
		out = append(out, &v1.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.metadata, Image: c.image, ImageRef: c.imageRef, ImageId: c.imageRef,
			State: c.state, CreatedAt: c.created, Labels: c.labels, Annotations: c.annotations,
		})
	}
	return out, nil
}

// UpdateContainerResources implements runtime.Runtime.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, resources *v1.LinuxContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return notFound("container", id)
	}
	c.resources = resources
	return nil
}

// ReopenContainerLog implements runtime.Runtime. Simulated containers write nothing.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := r.running(id)
	return err
}

// ExecSync implements runtime.Runtime.
func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	c, err := r.running(id)
	if err != nil {
		return nil, nil, 0, err
	}
	if err := r.fault("ExecSync", c.Metadata.Name); err != nil {
		return nil, nil, 0, err
	}
	if r.config.Exec == nil {
		return nil, nil, 0, nil
	}
	return r.config.Exec(c, command)
}

func (r *Runtime) running(id string) (*v1.ContainerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[id]
	if !ok {
		return nil, notFound("container", id)
	}
	if c.state != v1.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is in %s state", id, c.state)
	}
	return c.status(), nil
}

var errNoStreaming = status.Error(codes.Unimplemented, "a simulated container has no program to talk to")

// Exec implements runtime.Runtime: there is nothing to stream.
func (r *Runtime) Exec(context.Context, *v1.ExecRequest) (string, error) { return "", errNoStreaming }

// Attach implements runtime.Runtime: there is nothing to stream.
func (r *Runtime) Attach(context.Context, *v1.AttachRequest) (string, error) {
	return "", errNoStreaming
}

// PortForward implements runtime.Runtime: there is nothing to stream.
func (r *Runtime) PortForward(context.Context, *v1.PortForwardRequest) (string, error) {
	return "", errNoStreaming
}

// ListContainerStats implements runtime.Runtime. Simulated containers use nothing.
func (r *Runtime) ListContainerStats(ctx context.Context, filter *v1.ContainerStatsFilter) ([]*v1.ContainerStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UnixNano()
	var out []*v1.ContainerStats
	for _, c := range sortedBy(r.containers) {
		if c.state != v1.ContainerState_CONTAINER_RUNNING || (filter.GetId() != "" && filter.Id != c.id) ||
			(filter.GetPodSandboxId() != "" && filter.PodSandboxId != c.sandbox.id) || !matches(filter.GetLabelSelector(), c.labels) {
			continue
		}
		out = append(out, &v1.ContainerStats{
			Attributes: &v1.ContainerAttributes{Id: c.id, Metadata: c.metadata, Labels: c.labels, Annotations: c.annotations},
			Cpu:        &v1.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &v1.UInt64Value{}, UsageNanoCores: &v1.UInt64Value{}},
			Memory:     &v1.MemoryUsage{Timestamp: now, WorkingSetBytes: &v1.UInt64Value{}},
		})
	}
	return out, nil
}

// ListPodSandboxStats implements runtime.Runtime. Simulated sandboxes use nothing.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, filter *v1.PodSandboxStatsFilter) ([]*v1.PodSandboxStats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*v1.PodSandboxStats
	for _, s := range sortedBy(r.sandboxes) {
		if s.stopped || (filter.GetId() != "" && filter.Id != s.id) || !matches(filter.GetLabelSelector(), s.labels) {
			continue
		}
		out = append(out, &v1.PodSandboxStats{Attributes: &v1.PodSandboxAttributes{
			Id: s.id, Metadata: s.metadata, Labels: s.labels, Annotations: s.annotations,
		}})
	}
	return out, nil
}

// setting reads one of the annotations that say how the container behaves.
func (c *container) setting(key string) string {
	return annotation(key, c.metadata.Name, c.annotations, c.sandbox.annotations)
}
