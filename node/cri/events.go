package cri

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	containerdevents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/runtime"
)

// The delays between attempts to subscribe again.
const (
	resubscribeMin = 50 * time.Millisecond
	resubscribeMax = 5 * time.Second
)

// containerdFilter selects what came through CRI and can change what CRI reports.
const containerdFilter = `namespace==k8s.io,topic~="^(/tasks/start|/tasks/exit|/tasks/oom|/containers/delete)$"`

// Events implements runtime.Runtime. It subscribes again whenever the runtime went away, and then reports every sandbox
// once, because what happened in between is unknown. It returns when ctx has ended.
func (r *Runtime) Events(ctx context.Context, handle func(runtime.Event)) error {
	source := r.criEvents
	delay := resubscribeMin
	for first := true; ; first = false {
		started := time.Now()
		err := source(ctx, func() {
			if !first {
				r.reportAll(ctx, handle)
			}
		}, handle)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if status.Code(err) == codes.Unimplemented {
			// containerd before 1.7 has no CRI events, but its own event service on the same socket.
			r.log.Debug("runtime offers no cri events, using containerd's")
			source, first = r.containerdEvents, true
			continue
		}
		r.log.Warn("runtime events ended, subscribing again", "err", err)
		if time.Since(started) > resubscribeMax {
			delay = resubscribeMin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay/2 + rand.N(delay)):
		}
		delay = min(2*delay, resubscribeMax)
		if _, err := r.client.Version(ctx, &v1.VersionRequest{}); err != nil {
			r.log.Debug("runtime does not answer", "err", err)
		}
	}
}

// criEvents reports the events of CRI itself until the stream breaks.
func (r *Runtime) criEvents(ctx context.Context, subscribed func(), handle func(runtime.Event)) error {
	stream, err := r.client.GetContainerEvents(ctx, &v1.GetEventsRequest{})
	if err != nil {
		return err
	}
	// The call is made before the server answers, so a list taken from here on misses nothing that no event reports.
	subscribed()
	for {
		response, err := stream.Recv()
		if err != nil {
			return streamEnd(err)
		}
		event := runtime.Event{Sandbox: response.PodSandboxStatus.GetId(), Container: response.ContainerId}
		if event.Container == event.Sandbox || event.Sandbox == "" {
			// A sandbox is reported as a container of its own name, and without a status once it is gone.
			event = runtime.Event{Sandbox: response.ContainerId}
			if sandbox, ok := r.sandboxOf(ctx, response.ContainerId); ok && sandbox != response.ContainerId {
				event = runtime.Event{Sandbox: sandbox, Container: response.ContainerId}
			}
		} else {
			r.remember(event.Container, event.Sandbox)
		}
		handle(event)
	}
}

// containerdEvents reports containerd's own events until the stream breaks.
func (r *Runtime) containerdEvents(ctx context.Context, subscribed func(), handle func(runtime.Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	// Order matters at the end: first cancel, then wait for those who look up exits.
	var exits sync.WaitGroup
	defer exits.Wait()
	defer cancel()

	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	stream, err := eventsapi.NewEventsClient(r.conn).Subscribe(ctx, &eventsapi.SubscribeRequest{
		Filters: []string{containerdFilter},
	})
	if err != nil {
		return err
	}
	subscribed()

	// handle is called by one goroutine at a time.
	var mu sync.Mutex
	report := func(id string) {
		event := runtime.Event{Sandbox: id}
		if sandbox, ok := r.sandboxOf(ctx, id); ok && sandbox != id {
			event = runtime.Event{Sandbox: sandbox, Container: id}
		}
		mu.Lock()
		defer mu.Unlock()
		handle(event)
	}
	for {
		envelope, err := stream.Recv()
		if err != nil {
			return streamEnd(err)
		}
		switch envelope.Topic {
		case "/tasks/start":
			var event containerdevents.TaskStart
			if decode(envelope, &event) == nil {
				report(event.ContainerID)
			}
		case "/tasks/exit":
			var event containerdevents.TaskExit
			if decode(envelope, &event) != nil || event.ID != event.ContainerID {
				continue // a process started by exec ended, not the container
			}
			exits.Go(func() {
				r.awaitExit(ctx, event.ContainerID)
				if ctx.Err() == nil {
					report(event.ContainerID)
				}
			})
		case "/tasks/oom":
			var event containerdevents.TaskOOM
			if decode(envelope, &event) == nil {
				report(event.ContainerID)
			}
		case "/containers/delete":
			var event containerdevents.ContainerDelete
			if decode(envelope, &event) == nil {
				report(event.ID)
				r.forget(event.ID)
			}
		}
	}
}

// awaitExit waits until CRI knows of an exit that containerd has published: containerd's CRI service learns of it by a
// path of its own and reports the container running for some milliseconds more.
func (r *Runtime) awaitExit(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for delay := 2 * time.Millisecond; ; delay = min(2*delay, 500*time.Millisecond) {
		sandbox, _ := r.sandboxOf(ctx, id)
		if sandbox == id {
			response, err := r.client.PodSandboxStatus(ctx, &v1.PodSandboxStatusRequest{PodSandboxId: id})
			if err != nil || response.Status.GetState() != v1.PodSandboxState_SANDBOX_READY {
				return
			}
		} else {
			response, err := r.client.ContainerStatus(ctx, &v1.ContainerStatusRequest{ContainerId: id})
			if err != nil || response.Status.GetState() == v1.ContainerState_CONTAINER_EXITED {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// sandboxOf finds the sandbox of a container; a sandbox is its own. It asks the runtime for containers that an earlier
// process has made.
func (r *Runtime) sandboxOf(ctx context.Context, id string) (string, bool) {
	r.mu.Lock()
	sandbox, ok := r.sandboxes[id]
	r.mu.Unlock()
	if ok {
		return sandbox, true
	}
	if containers, err := r.ListContainers(ctx, &v1.ContainerFilter{Id: id}); err == nil && len(containers) == 1 {
		r.remember(id, containers[0].PodSandboxId)
		return containers[0].PodSandboxId, true
	}
	if sandboxes, err := r.ListPodSandbox(ctx, &v1.PodSandboxFilter{Id: id}); err == nil && len(sandboxes) == 1 {
		r.remember(id, id)
		return id, true
	}
	return "", false
}

func (r *Runtime) reportAll(ctx context.Context, handle func(runtime.Event)) {
	sandboxes, err := r.ListPodSandbox(ctx, nil)
	if err != nil {
		r.log.Warn("sandboxes not listed after the runtime came back", "err", err)
		return
	}
	for _, sandbox := range sandboxes {
		handle(runtime.Event{Sandbox: sandbox.Id})
	}
}

func streamEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the runtime closed the stream")
	}
	return err
}
