package simulated

import (
	"context"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// sandbox holds what the runtime reports of a sandbox, not its whole configuration.
type sandbox struct {
	id          string
	created     int64
	stopped     bool
	handler     string
	metadata    *v1.PodSandboxMetadata
	labels      map[string]string
	annotations map[string]string
	namespaces  *v1.NamespaceOption
	addresses   []netip.Addr
}

// RunPodSandbox implements runtime.Runtime.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *v1.PodSandboxConfig, handler string) (string, error) {
	meta := config.GetMetadata()
	if meta == nil {
		return "", status.Error(codes.InvalidArgument, "sandbox config must include metadata")
	}
	if err := r.fault("RunPodSandbox", meta.Name); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.sandboxes {
		if other.metadata.Uid == meta.Uid && other.metadata.Attempt == meta.Attempt && other.metadata.Name == meta.Name && other.metadata.Namespace == meta.Namespace {
			return "", status.Errorf(codes.AlreadyExists, "failed to reserve sandbox name %q: name is reserved for %q", meta.Name, other.id)
		}
	}
	now := time.Now().UnixNano()
	s := &sandbox{
		id:          newID("sandbox", meta.Namespace, meta.Name, meta.Uid, time.Unix(0, now).String(), string(rune(meta.Attempt))),
		created:     now,
		handler:     handler,
		metadata:    meta,
		labels:      config.Labels,
		annotations: config.Annotations,
		namespaces:  config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
	}
	if s.namespaces.GetNetwork() != v1.NamespaceMode_NODE {
		for i := range r.addresses {
			addr, ok := r.addresses[i].take()
			if !ok {
				r.releaseLocked(s)
				return "", status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: no IP addresses available in range set: %s", s.id, r.addresses[i].prefix)
			}
			s.addresses = append(s.addresses, addr)
		}
	}
	r.sandboxes[s.id] = s
	r.publishLocked(runtime.Event{Sandbox: s.id})
	return s.id, nil
}

// StopPodSandbox implements runtime.Runtime. Containers that run are killed. Stopping what is not there succeeds, as the
// contract of CRI asks.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	r.mu.Lock()
	s, ok := r.sandboxes[id]
	r.mu.Unlock()
	if !ok {
		return nil
	}
	if err := r.fault("StopPodSandbox", s.metadata.Name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.sandbox == s {
			r.exitLocked(c, 137, "Error")
		}
	}
	if !s.stopped {
		s.stopped = true
		r.releaseLocked(s)
		r.publishLocked(runtime.Event{Sandbox: id})
	}
	return nil
}

func (r *Runtime) releaseLocked(s *sandbox) {
	for _, addr := range s.addresses {
		for i := range r.addresses {
			r.addresses[i].give(addr)
		}
	}
	s.addresses = nil
}

// RemovePodSandbox implements runtime.Runtime. It stops the sandbox if need be and removes its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxes[id]
	if !ok {
		return nil
	}
	for _, c := range r.containers {
		if c.sandbox == s {
			r.removeLocked(c)
		}
	}
	delete(r.sandboxes, id)
	r.publishLocked(runtime.Event{Sandbox: id})
	return nil
}

// PodSandboxStatus implements runtime.Runtime.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*v1.PodSandboxStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxes[id]
	if !ok {
		return nil, notFound("sandbox", id)
	}
	out := &v1.PodSandboxStatus{
		Id: s.id, Metadata: s.metadata, State: s.state(), CreatedAt: s.created, RuntimeHandler: s.handler,
		Labels: s.labels, Annotations: s.annotations,
		Network: &v1.PodSandboxNetworkStatus{},
		Linux:   &v1.LinuxPodSandboxStatus{Namespaces: &v1.Namespace{Options: s.namespaces}},
	}
	for i, addr := range s.addresses {
		if i == 0 {
			out.Network.Ip = addr.String()
		} else {
			out.Network.AdditionalIps = append(out.Network.AdditionalIps, &v1.PodIP{Ip: addr.String()})
		}
	}
	return out, nil
}

// ListPodSandbox implements runtime.Runtime.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *v1.PodSandboxFilter) ([]*v1.PodSandbox, error) {
	if err := r.fault("ListPodSandbox", ""); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*v1.PodSandbox
	for _, s := range sortedBy(r.sandboxes) {
		if (filter.GetId() != "" && filter.Id != s.id) || (filter.GetState() != nil && filter.State.State != s.state()) || !matches(filter.GetLabelSelector(), s.labels) {
			continue
		}
		out = append(out, &v1.PodSandbox{
			Id: s.id, Metadata: s.metadata, State: s.state(), CreatedAt: s.created, RuntimeHandler: s.handler,
			Labels: s.labels, Annotations: s.annotations,
		})
	}
	return out, nil
}

func (s *sandbox) state() v1.PodSandboxState {
	if s.stopped {
		return v1.PodSandboxState_SANDBOX_NOTREADY
	}
	return v1.PodSandboxState_SANDBOX_READY
}
