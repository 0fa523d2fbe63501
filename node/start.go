package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pauses after a pod's start failed.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 2*time.Minute + 2*time.Second
)

// startPod brings up the sandbox and the containers of a plan, one after the other as they are listed.
func (n *Node) startPod(ctx context.Context, p *pod, api *corev1.Pod, plan plan) {
	if plan.sandbox {
		// Only sandboxes are limited: containers may wait long for their images and hooks.
		select {
		case n.starts <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := n.startSandbox(ctx, p, api)
		<-n.starts
		if err != nil {
			n.failed(ctx, p, api, err)
			return
		}
		// The next step sees the sandbox and plans the containers anew.
		p.mu.Lock()
		p.retries, p.retry = 0, time.Time{}
		p.mu.Unlock()
	}
	p.markDirty()
	if err := n.refresh(ctx, p); err != nil {
		return
	}
	var lasting error
	for _, c := range plan.start {
		if ctx.Err() != nil {
			return
		}
		if err := n.startContainer(ctx, p, api, c); err != nil {
			n.Log.Debug("container not started", "pod", api.Namespace+"/"+api.Name, "container", c.Name, "err", err)
			lasting = err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if lasting != nil {
		p.pause()
	} else {
		p.retries, p.retry = 0, time.Time{}
	}
}

// pause puts the next start off. The caller holds mu.
func (p *pod) pause() {
	p.retry = time.Now().Add(min(retryFirst<<min(p.retries, 10), 10*time.Second))
	p.retries++
}

// podError is a failure that the pod's events tell of.
type podError struct {
	reason string
	err    error
}

func (e *podError) Error() string { return e.err.Error() }
func (e *podError) Unwrap() error { return e.err }

func (n *Node) failed(ctx context.Context, p *pod, api *corev1.Pod, err error) {
	if ctx.Err() != nil {
		return
	}
	reason := "FailedSync"
	if known, ok := errors.AsType[*podError](err); ok {
		reason = known.reason
	}
	n.event(api, "", corev1.EventTypeWarning, reason, err.Error())
	n.Log.Debug("pod not started", "pod", api.Namespace+"/"+api.Name, "err", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retry = time.Now().Add(min(retryFirst<<min(p.retries, 10), retryMost))
	p.retries++
}

func (n *Node) startSandbox(ctx context.Context, p *pod, api *corev1.Pod) error {
	p.mu.Lock()
	old := slices.Clone(p.sandboxes)
	live := p.live()
	p.mu.Unlock()
	var attempt uint32
	if len(old) > 0 {
		n.event(api, "", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		attempt = old[0].GetMetadata().GetAttempt() + 1
		for _, c := range live {
			_ = n.Runtime.StopContainer(ctx, c.Id, 0) // stopping its sandbox below ends it too
		}
		for i, s := range old {
			if err := n.Runtime.StopPodSandbox(ctx, s.Id); err != nil {
				return &podError{"FailedKillPod", fmt.Errorf("error killing pod: %w", err)}
			}
			// The newest of the dead is kept: its containers are the last state of the new ones.
			if i > 0 {
				_ = n.Runtime.RemovePodSandbox(ctx, s.Id) // removed with the pod at the latest
			}
		}
	}
	if err := n.preparePod(ctx, p, api); err != nil {
		return err
	}
	config, handler, err := n.sandboxConfig(ctx, p, api, attempt)
	if err != nil {
		return &podError{"FailedCreatePodSandBox", fmt.Errorf("Failed to create pod sandbox: %w", err)}
	}
	id, err := n.Runtime.RunPodSandbox(ctx, config, handler)
	if err != nil {
		return &podError{"FailedCreatePodSandBox", fmt.Errorf("Failed to create pod sandbox: %s", rpcText(err))}
	}
	n.mu.Lock()
	n.sandboxes[id] = p.uid
	n.mu.Unlock()
	return nil
}

// rpcText is an error of the runtime as users know it.
func rpcText(err error) string {
	if s, ok := status.FromError(err); ok && err != nil {
		return fmt.Sprintf("rpc error: code = %s desc = %s", s.Code(), s.Message())
	}
	return err.Error()
}

// plainText is an error of the runtime without its code.
func plainText(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// preparePod makes what has to be there before the sandbox: cgroup, folders and volumes.
func (n *Node) preparePod(ctx context.Context, p *pod, api *corev1.Pod) error {
	if n.cgroups != nil {
		if err := n.cgroups.Ensure(n.cgroups.Path(api.UID, qosClass(api)), podCgroup(api)); err != nil {
			return &podError{"FailedCreatePodContainer", fmt.Errorf("unable to ensure pod container exists: %w", err)}
		}
	}
	if n.RootDir == "" {
		return nil
	}
	for _, dir := range []string{n.podDir(api), n.podLogDir(api)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return &podError{"FailedToMakePodDataDirectories", fmt.Errorf("error making pod data directories: %w", err)}
		}
	}
	p.mu.Lock()
	p.refreshVolumes = false // whatever changes from here on is looked at again
	if p.api != nil {
		api = p.api
	}
	p.mu.Unlock()
	if err := n.volumes.Setup(ctx, api); err != nil {
		return &podError{"FailedMount", err}
	}
	p.mu.Lock()
	p.mounted = true
	p.mu.Unlock()
	return nil
}

func (n *Node) podDir(api *corev1.Pod) string {
	return filepath.Join(n.RootDir, "pods", string(api.UID))
}

func (n *Node) podLogDir(api *corev1.Pod) string {
	return filepath.Join(n.LogDir, api.Namespace+"_"+api.Name+"_"+string(api.UID))
}

// refreshPodVolumes brings new versions of ConfigMaps and Secrets into a running pod.
func (n *Node) refreshPodVolumes(ctx context.Context, p *pod, api *corev1.Pod) {
	p.mu.Lock()
	p.refreshVolumes, p.volumesAt = false, time.Time{}
	if p.api != nil {
		api = p.api // what was planned with may be older than the wish to refresh
	}
	p.mu.Unlock()
	if n.volumes == nil {
		return
	}
	err := n.volumes.Setup(ctx, api)
	if err != nil {
		n.failed(ctx, p, api, &podError{"FailedMount", err})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mounted = true
	p.refreshVolumes = p.refreshVolumes || err != nil
}

// startContainer pulls, creates and starts one container and runs its postStart hook. What goes wrong is told in an event
// and kept as the reason that the container waits.
func (n *Node) startContainer(ctx context.Context, p *pod, api *corev1.Pod, c *corev1.Container) error {
	p.mu.Lock()
	sandbox, network := p.sandbox(), p.network
	last := p.newest(c.Name)
	p.mu.Unlock()
	if sandbox == nil {
		return errors.New("the sandbox is not ready")
	}
	fail := func(reason, message, event string) error {
		p.mu.Lock()
		p.wait(c.Name, reason, message)
		p.mu.Unlock()
		if ctx.Err() == nil {
			n.event(api, c.Name, corev1.EventTypeWarning, "Failed", event)
		}
		n.queue.Add(p.uid)
		return errors.New(reason + ": " + message)
	}
	if n.RootDir != "" {
		// After a restart of the agent, and before it, what is mounted is made sure of.
		p.mu.Lock()
		mounted := p.mounted
		p.mu.Unlock()
		if !mounted {
			if err := n.preparePod(ctx, p, api); err != nil {
				n.failed(ctx, p, api, err)
				return err
			}
		}
	}
	sandboxConfig, _, err := n.sandboxConfig(ctx, p, api, sandbox.GetMetadata().GetAttempt())
	if err != nil {
		return fail("CreateContainerConfigError", err.Error(), "Error: "+err.Error())
	}
	image, err := n.ensureImage(ctx, p, api, c, sandboxConfig)
	if err != nil {
		n.queue.Add(p.uid)
		return err
	}
	var restarts uint32
	if last != nil {
		restarts = restartCount(last) + 1
		p.mu.Lock()
		p.next(crashKey(c), time.Unix(0, last.FinishedAt))
		p.mu.Unlock()
	} else if old := statusOf(api, c.Name); old != nil && old.ContainerID != "" {
		// The runtime has lost all traces of the one before, as after a stop of the whole node.
		restarts = uint32(old.RestartCount) + 1
	}
	config, err := n.containerConfig(ctx, p, api, c, image, podIPs(network), restarts)
	if err != nil {
		return fail("CreateContainerConfigError", err.Error(), "Error: "+err.Error())
	}
	if config.LogPath != "" {
		if err := os.MkdirAll(filepath.Join(n.podLogDir(api), c.Name), 0o755); err != nil {
			return fail("CreateContainerError", err.Error(), "Error: "+err.Error())
		}
	}
	id, err := n.Runtime.CreateContainer(ctx, sandbox.Id, config, sandboxConfig)
	if err != nil {
		return fail("CreateContainerError", plainText(err), "Error: "+plainText(err))
	}
	n.event(api, c.Name, corev1.EventTypeNormal, "Created", "Created container "+c.Name)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		p.mu.Lock()
		if p.hooking == nil {
			p.hooking = map[string]string{}
		}
		p.hooking[c.Name] = id
		p.mu.Unlock()
	}
	if err := n.Runtime.StartContainer(ctx, id); err != nil {
		return fail("RunContainerError", plainText(err), "Error: "+plainText(err))
	}
	n.event(api, c.Name, corev1.EventTypeNormal, "Started", "Started container "+c.Name)
	p.mu.Lock()
	delete(p.waiting, c.Name)
	p.dirty = true
	p.mu.Unlock()
	n.pruneContainers(ctx, p, c.Name)
	if c.Lifecycle != nil && c.Lifecycle.PostStart != nil {
		n.queue.Add(p.uid)
		text, err := n.runHook(ctx, api, c, id, c.Lifecycle.PostStart, podIPs(network))
		p.mu.Lock()
		delete(p.hooking, c.Name)
		p.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			n.event(api, c.Name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			n.stopContainer(ctx, p, api, stopping{status: &cri.ContainerStatus{Id: id}, spec: c, reason: "FailedPostStartHook"}, nil)
			p.mu.Lock()
			p.wait(c.Name, "PostStartHookError", text)
			p.mu.Unlock()
			return fmt.Errorf("postStart of %s: %w", c.Name, err)
		}
	}
	n.queue.Add(p.uid)
	return nil
}

// statusOf finds what the pod's status says of a container, nil if nothing.
func statusOf(api *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{api.Status.ContainerStatuses, api.Status.InitContainerStatuses, api.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func restartCount(c *cri.ContainerStatus) uint32 {
	if text, ok := c.Annotations[annotationRestartCount]; ok {
		if count, err := strconv.ParseUint(text, 10, 32); err == nil {
			return uint32(count)
		}
	}
	return c.GetMetadata().GetAttempt()
}

// pruneContainers removes all but the newest two containers of a name: the last one is where "previous" logs come from.
func (n *Node) pruneContainers(ctx context.Context, p *pod, name string) {
	p.mu.Lock()
	old := slices.Clone(p.containers[name]) // without the one just started
	p.mu.Unlock()
	for i, c := range old {
		if i < 1 || c.State != cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		if err := n.Runtime.RemoveContainer(ctx, c.Id); err == nil && c.LogPath != "" && n.LogDir != "" {
			removeLogs(c.LogPath)
		}
	}
}

// removeLogs of a container, rotated ones too.
func removeLogs(path string) {
	files, _ := filepath.Glob(path + "*") // the pattern is a path of ours
	for _, f := range files {
		_ = os.Remove(f) // gone with the pod's folder at the latest
	}
}
