package node

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plan is what a pod's present state asks for. At most one of its jobs is done at a time, in the order of the fields.
type plan struct {
	// stopAll stops the pod for good; finish cleans up after that.
	stopAll, finish bool
	// delete says that the API waits for the pod to end.
	delete bool
	stop   []stopping
	// sandbox says that a (new) one is needed.
	sandbox bool
	start   []*corev1.Container
	volumes bool
	// initialized says that the init containers have done their part.
	initialized bool
	// held says that the jobs wait because the last one has just failed.
	held bool
	// retry is when to look again without any event.
	retry time.Duration
}

// stopping is a container to stop, and why.
type stopping struct {
	status *cri.ContainerStatus
	spec   *corev1.Container
	reason string
	grace  *int64
}

func (p *plan) again(after time.Duration) {
	if p.retry == 0 || after < p.retry {
		p.retry = max(after, time.Millisecond)
	}
}

// plan compares what should be with what is.
func (n *Node) plan(p *pod, api *corev1.Pod) plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out plan
	if api.DeletionTimestamp != nil || p.refusal != nil || terminal(api) {
		out.delete = api.DeletionTimestamp != nil
		out.initialized = p.initialized(api)
		live := len(p.live()) > 0
		out.stopAll = live
		out.finish = !live && (!p.finished || out.delete && !p.deleted)
		p.holdBack(&out)
		return out
	}
	sandbox := p.sandbox()
	n.planVolumes(p, sandbox, &out)
	if sandbox == nil {
		if len(p.sandboxes) > 0 && p.done(api) {
			out.initialized = p.initialized(api)
			out.finish = !p.finished
			p.holdBack(&out)
			return out
		}
		out.sandbox = true
	}
	out.initialized = n.planInit(p, api, sandbox, &out)
	if out.initialized {
		for i := range api.Spec.Containers {
			n.planContainer(p, api, &api.Spec.Containers[i], sandbox, &out)
		}
	}
	if sandbox != nil {
		for i := range api.Spec.EphemeralContainers {
			c := corev1.Container(api.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if p.newest(c.Name) == nil {
				out.start = append(out.start, &c)
			}
		}
	}
	if p.done(api) {
		// Nothing will run again: sidecars have no one left to serve.
		out.start, out.sandbox, out.stop = nil, false, nil
		out.stopAll = len(p.live()) > 0
		out.finish = !out.stopAll && !p.finished
	}
	p.holdBack(&out)
	return out
}

// planVolumes brings a running pod's volumes up to date: when a source has changed, when a token grows old, and after a
// restart of the agent. The caller holds mu.
func (n *Node) planVolumes(p *pod, sandbox *cri.PodSandbox, out *plan) {
	if n.volumes == nil || sandbox == nil {
		return
	}
	if !p.mounted {
		out.volumes = p.adopted
		return
	}
	switch left := time.Until(p.volumesAt); {
	case p.refreshVolumes, !p.volumesAt.IsZero() && left <= 0:
		out.volumes = true
	case !p.volumesAt.IsZero():
		out.again(left)
	}
}

// holdBack puts jobs off while the last one has just failed. The caller holds mu.
func (p *pod) holdBack(out *plan) {
	left := time.Until(p.retry)
	if left <= 0 || !(out.sandbox || out.stopAll || out.finish || out.volumes || len(out.start) > 0 || len(out.stop) > 0) {
		return
	}
	out.held = true
	out.again(left)
}

// done reports whether the pod's containers have all ended for good. The caller holds mu.
func (p *pod) done(api *corev1.Pod) bool {
	if api.Spec.RestartPolicy == corev1.RestartPolicyAlways || api.Spec.RestartPolicy == "" {
		return false
	}
	for i := range api.Spec.InitContainers {
		c := &api.Spec.InitContainers[i]
		status := p.newest(c.Name)
		if sidecar(c) || status == nil || status.State != cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		if status.ExitCode != 0 && api.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return true
		}
	}
	for i := range api.Spec.Containers {
		status := p.newest(api.Spec.Containers[i].Name)
		if status == nil || status.State != cri.ContainerState_CONTAINER_EXITED {
			return false
		}
		if status.ExitCode != 0 && api.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			return false
		}
	}
	return true
}

func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// planInit walks the init containers up to the first that has to be waited for, and reports whether there is none. The
// caller holds mu.
func (n *Node) planInit(p *pod, api *corev1.Pod, sandbox *cri.PodSandbox, out *plan) bool {
	// Once a container proper exists in this sandbox, init containers are history; only sidecars are looked after.
	past := false
	for i := range api.Spec.Containers {
		if status := p.newest(api.Spec.Containers[i].Name); status != nil && sandbox != nil && status.CreatedAt >= sandbox.CreatedAt {
			past = true
		}
	}
	for i := range api.Spec.InitContainers {
		c := &api.Spec.InitContainers[i]
		status := p.newest(c.Name)
		if sidecar(c) {
			n.planContainer(p, api, c, sandbox, out)
			if !past && !p.isStarted(api, c, status) {
				return false
			}
			continue
		}
		if past {
			continue
		}
		current := status != nil && sandbox != nil && status.CreatedAt >= sandbox.CreatedAt
		switch {
		case !current:
			out.start = append(out.start, c)
			return false
		case status.State == cri.ContainerState_CONTAINER_EXITED && status.ExitCode == 0:
			continue
		case status.State == cri.ContainerState_CONTAINER_EXITED:
			if api.Spec.RestartPolicy != corev1.RestartPolicyNever {
				n.restart(p, api, c, status, out)
			}
			return false
		case status.State == cri.ContainerState_CONTAINER_CREATED && !p.busy:
			out.stop = append(out.stop, stopping{status: status, spec: c, reason: "Unknown"})
			return false
		default:
			return false
		}
	}
	return true
}

// initialized reports whether a pod that starts nothing any more had its init containers behind it. The caller holds mu.
func (p *pod) initialized(api *corev1.Pod) bool {
	for i := range api.Spec.Containers {
		if p.newest(api.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	for i := range api.Spec.InitContainers {
		status := p.newest(api.Spec.InitContainers[i].Name)
		if status == nil || !sidecar(&api.Spec.InitContainers[i]) && (status.State != cri.ContainerState_CONTAINER_EXITED || status.ExitCode != 0) {
			return false
		}
	}
	return true
}

// isStarted reports whether a sidecar lets the next container start. The caller holds mu.
func (p *pod) isStarted(api *corev1.Pod, c *corev1.Container, status *cri.ContainerStatus) bool {
	return status != nil && status.State == cri.ContainerState_CONTAINER_RUNNING && p.hooking[c.Name] != status.Id &&
		p.hasStarted(api, c, status.Id)
}

// planContainer decides on a container proper or a sidecar. The caller holds mu.
func (n *Node) planContainer(p *pod, api *corev1.Pod, c *corev1.Container, sandbox *cri.PodSandbox, out *plan) {
	status := p.newest(c.Name)
	if status == nil {
		out.start = append(out.start, c)
		return
	}
	current := sandbox != nil && status.CreatedAt >= sandbox.CreatedAt
	switch status.State {
	case cri.ContainerState_CONTAINER_RUNNING:
		if !current {
			out.stop = append(out.stop, stopping{status: status, spec: c, reason: "Pod sandbox changed, it will be killed and re-created."})
			return
		}
		if hash := status.Annotations[annotationHash]; hash != "" && hash != containerHash(c) {
			out.stop = append(out.stop, stopping{status: status, spec: c, reason: fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)})
			return
		}
		if kind, grace := p.probeFailed(c, status.Id); kind != "" {
			message := fmt.Sprintf("Container %s failed %s probe", c.Name, kind)
			if api.Spec.RestartPolicy != corev1.RestartPolicyNever || sidecar(c) {
				message += ", will be restarted"
			}
			out.stop = append(out.stop, stopping{status: status, spec: c, reason: message, grace: grace})
		}
	case cri.ContainerState_CONTAINER_EXITED:
		if !sidecar(c) {
			switch api.Spec.RestartPolicy {
			case corev1.RestartPolicyNever:
				return
			case corev1.RestartPolicyOnFailure:
				if status.ExitCode == 0 {
					return
				}
			}
		}
		n.restart(p, api, c, status, out)
	case cri.ContainerState_CONTAINER_CREATED:
		// Left over from a start that was interrupted.
		if !p.busy {
			out.stop = append(out.stop, stopping{status: status, spec: c, reason: "Unknown"})
		}
	case cri.ContainerState_CONTAINER_UNKNOWN:
		out.stop = append(out.stop, stopping{status: status, spec: c, reason: "Container is in unknown state, try killing it before restart"})
	}
}

// restart starts a container again, or waits while it crashes too often. The caller holds mu.
func (n *Node) restart(p *pod, api *corev1.Pod, c *corev1.Container, status *cri.ContainerStatus, out *plan) {
	left, whole := p.inBackoff(crashKey(c), time.Unix(0, status.FinishedAt))
	if left == 0 {
		out.start = append(out.start, c)
		return
	}
	out.again(left)
	if p.waiting[c.Name].Reason != "CrashLoopBackOff" && !p.busy {
		p.wait(c.Name, "CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", whole, c.Name, api.Name, api.Namespace, api.UID))
		n.event(api, c.Name, corev1.EventTypeWarning, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, api.Name, api.Namespace, api.UID))
	}
}

// crashKey is what the back-off of a container is kept under: a container with a new image has not crashed yet.
func crashKey(c *corev1.Container) string { return "crash/" + c.Name + "/" + containerHash(c) }

// wait notes why a container does not run. The caller holds mu.
func (p *pod) wait(container, reason, message string) {
	if p.waiting == nil {
		p.waiting = map[string]corev1.ContainerStateWaiting{}
	}
	p.waiting[container] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// containerHash tells whether what may change of a container in a running pod has changed: its name and image.
func containerHash(c *corev1.Container) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Name + "\x00" + c.Image)) // a hash does not fail
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
