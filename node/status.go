package node

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// settle is how long a new pod has to run before the API is told that it does not yet: most do by then, and need one
// write instead of two.
const settle = 100 * time.Millisecond

// report writes the pod's status when it is not what the API has. It returns a delay when that has to wait.
func (n *Node) report(ctx context.Context, p *pod, api *corev1.Pod, plan plan) (time.Duration, error) {
	status := n.podStatus(p, api, plan)
	p.mu.Lock()
	if left := settle - time.Since(p.started); left > 0 && api.Status.StartTime == nil && status.Phase == corev1.PodPending {
		p.mu.Unlock()
		return left, nil
	}
	ended := !plan.stopAll && len(p.live()) == 0 && !p.busy
	p.mu.Unlock()
	if terminal(api) && !plan.delete {
		ended = false // a status that has ended changes no more, but for its containers
	}
	if !sameStatus(&api.Status, status) {
		written, err := n.writeStatus(ctx, api, status)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
			// Gone, changed, or another pod of the name: the subscription tells, and the next step reports.
			ended = false
		case err != nil:
			return 0, fmt.Errorf("write status of pod %s/%s: %w", api.Namespace, api.Name, err)
		default:
			p.mu.Lock()
			if p.api == api {
				p.api = written
			}
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reported = nil
	if ended {
		p.reported = status
	}
	return 0, nil
}

// sameStatus compares statuses by what is stored of them, in a fraction of the time of a comparison by reflection.
func sameStatus(a, b *corev1.PodStatus) bool {
	x, err := a.Marshal()
	y, err2 := b.Marshal()
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// writeStatus puts a pod's status into the API, if the pod there is still the one that the status was worked out from.
func (n *Node) writeStatus(ctx context.Context, api *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	next := *api
	next.Status = *status
	return n.pods.UpdateStatus(ctx, &next)
}

// podStatus works out a pod's status from what runs.
func (n *Node) podStatus(p *pod, api *corev1.Pod, plan plan) *corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := api.Status.DeepCopy()
	if p.started.IsZero() {
		p.started = time.Now()
	}
	if out.StartTime == nil {
		start := metav1.NewTime(p.started.Truncate(time.Second))
		out.StartTime = &start
	}
	if out.QOSClass == "" {
		out.QOSClass = qosClass(api)
	}
	if p.refusal != nil && len(p.containers) == 0 {
		out.Phase, out.Reason, out.Message = corev1.PodFailed, p.refusal.reason, refusalMessage(p.refusal)
		if len(out.ContainerStatuses) == 0 {
			n.conditions(p, api, out, plan)
			return out
		}
	}
	if terminal(api) && len(p.containers) == 0 && len(p.sandboxes) == 0 {
		return out // all that is known of it is what the API has
	}
	n.addresses(p, api, out)
	out.InitContainerStatuses = p.statuses(api, api.Spec.InitContainers, api.Status.InitContainerStatuses, plan, true)
	out.ContainerStatuses = p.statuses(api, api.Spec.Containers, api.Status.ContainerStatuses, plan, false)
	var ephemeral []corev1.Container
	for _, c := range api.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, corev1.Container(c.EphemeralContainerCommon))
	}
	out.EphemeralContainerStatuses = p.statuses(api, ephemeral, api.Status.EphemeralContainerStatuses, plan, false)
	for i := range out.EphemeralContainerStatuses {
		out.EphemeralContainerStatuses[i].Ready, out.EphemeralContainerStatuses[i].Started = false, nil
	}
	if !terminal(api) {
		out.Phase = phase(api, out, plan, p)
		out.Reason, out.Message = "", ""
		if p.refusal != nil {
			out.Reason, out.Message = p.refusal.reason, refusalMessage(p.refusal)
			if len(p.live()) == 0 {
				out.Phase = corev1.PodFailed
			}
		}
	}
	n.conditions(p, api, out, plan)
	return out
}

func refusalMessage(r *refusal) string {
	if r.reason == "DeadlineExceeded" || r.reason == preempting {
		return r.message
	}
	return "Pod was rejected: " + r.message
}

func (n *Node) addresses(p *pod, api *corev1.Pod, out *corev1.PodStatus) {
	hosts := n.hostIPs()
	if len(hosts) > 0 {
		out.HostIP, out.HostIPs = hosts[0], nil
		for _, ip := range hosts {
			out.HostIPs = append(out.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	ips := podIPs(p.network)
	if api.Spec.HostNetwork && p.network != nil {
		ips = hosts
	}
	if len(ips) > 0 {
		out.PodIP, out.PodIPs = ips[0], nil
		for _, ip := range ips {
			out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

// statuses of a list of containers. The caller holds mu.
func (p *pod) statuses(api *corev1.Pod, list []corev1.Container, before []corev1.ContainerStatus, plan plan, init bool) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range list {
		c := &list[i]
		var old *corev1.ContainerStatus
		if j := slices.IndexFunc(before, func(s corev1.ContainerStatus) bool { return s.Name == c.Name }); j >= 0 {
			old = &before[j]
		}
		out = append(out, p.status(api, c, old, plan, init))
	}
	return out
}

// status of one container. The caller holds mu.
func (p *pod) status(api *corev1.Pod, c *corev1.Container, old *corev1.ContainerStatus, plan plan, init bool) corev1.ContainerStatus {
	no := false
	out := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: &no}
	for _, m := range c.VolumeMounts {
		v := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			v.RecursiveReadOnly = &mode
		}
		out.VolumeMounts = append(out.VolumeMounts, v)
	}
	waiting, blocked := p.waiting[c.Name]
	if !blocked {
		waiting.Reason = "ContainerCreating"
		if len(api.Spec.InitContainers) > 0 && !plan.initialized {
			waiting.Reason = "PodInitializing"
		}
	}
	runs := p.containers[c.Name]
	if len(runs) > 0 && runs[0].State == cri.ContainerState_CONTAINER_CREATED {
		runs = runs[1:] // it is being started, or could not be
		if len(p.containers[c.Name]) > 0 {
			out.RestartCount = int32(restartCount(p.containers[c.Name][0]))
		}
	}
	ending := plan.stopAll || plan.finish || plan.delete
	if len(runs) == 0 {
		if old != nil && old.ContainerID != "" && len(p.containers[c.Name]) == 0 {
			return lost(*old, ending) // its traces are gone
		}
		out.State.Waiting = &waiting
		return out
	}
	newest := runs[0]
	out.RestartCount = max(out.RestartCount, int32(restartCount(newest)))
	out.ContainerID = p.prefix(newest.Id)
	if image := newest.GetImage().GetImage(); image != "" && !strings.HasPrefix(image, "sha256:") {
		out.Image = image
	}
	if user := newest.GetImage().GetUserSpecifiedImage(); user != "" && out.Image == newest.GetImageRef() {
		out.Image = user
	}
	out.ImageID = newest.GetImageRef()
	switch newest.State {
	case cri.ContainerState_CONTAINER_RUNNING:
		if p.hooking[c.Name] == newest.Id {
			// Until its postStart hook has ended, a container counts as being created.
			out.State.Waiting = &waiting
			out.ContainerID = ""
			if len(runs) > 1 {
				out.LastTerminationState.Terminated = p.terminated(runs[1])
				out.ContainerID = p.prefix(runs[1].Id)
			}
			return out
		}
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Unix(0, newest.StartedAt).Truncate(time.Second))}
		if len(runs) > 1 {
			out.LastTerminationState.Terminated = p.terminated(runs[1])
		} else if old != nil && out.RestartCount > 0 {
			out.LastTerminationState = old.LastTerminationState
		}
		started := p.hasStarted(api, c, newest.Id)
		out.Started = &started
		out.Ready = started && (c.ReadinessProbe == nil || p.probeSucceeded(c.Name, probeReadiness, newest.Id))
		if p.adopted && old != nil && old.ContainerID == out.ContainerID && old.State.Running != nil && !p.probed(c.Name, newest.Id) {
			// After a restart of the agent, what was known holds until the probe has something to say.
			out.Ready = old.Ready
		}
		if init && !sidecar(c) {
			out.Ready = false
		}
	case cri.ContainerState_CONTAINER_EXITED:
		ended := p.terminated(newest)
		again := slices.ContainsFunc(plan.start, func(s *corev1.Container) bool { return s.Name == c.Name })
		if (blocked || (again && newest != p.containers[c.Name][0])) && !ending {
			out.State.Waiting = &waiting
			out.LastTerminationState.Terminated = ended
			break
		}
		out.State.Terminated = ended
		if len(runs) > 1 {
			out.LastTerminationState.Terminated = p.terminated(runs[1])
		}
		out.Ready = init && !sidecar(c) && newest.ExitCode == 0
	default:
		out.State.Waiting = &waiting
	}
	return out
}

// probed reports whether a container run's readiness probe has come to a result. The caller holds mu.
func (p *pod) probed(container, id string) bool {
	cp := p.probes[container]
	return cp != nil && cp.id == id && cp.kinds[probeReadiness] != nil && cp.kinds[probeReadiness].result != probeUnknown
}

// hasStarted reports whether a container run needs no startup probe (any more): it has none, its probe was good, or that
// was so before the agent was restarted. The caller holds mu.
func (p *pod) hasStarted(api *corev1.Pod, c *corev1.Container, id string) bool {
	if c.StartupProbe == nil || p.probeSucceeded(c.Name, probeStartup, id) {
		return true
	}
	if !p.adopted {
		return false
	}
	return slices.ContainsFunc(slices.Concat(api.Status.InitContainerStatuses, api.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name == c.Name && s.ContainerID == p.prefix(id) && s.State.Running != nil && s.Started != nil && *s.Started
	})
}

// lost is what remains to say of a container of which the runtime knows nothing any more.
func lost(old corev1.ContainerStatus, ending bool) corev1.ContainerStatus {
	no := false
	if old.State.Running != nil && ending {
		old.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was terminated", ExitCode: 137,
			ContainerID: old.ContainerID,
		}}
	}
	if old.State.Running != nil {
		old.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "ContainerStatusUnknown", Message: "The container could not be located when the pod was deleted.  The container used to be Running", ExitCode: 137,
		}}
		old.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	}
	old.Started, old.Ready = &no, false
	return old
}

func (p *pod) prefix(id string) string { return p.scheme + "://" + id }

// terminated describes a container that has ended. The caller holds mu.
func (p *pod) terminated(c *cri.ContainerStatus) *corev1.ContainerStateTerminated {
	at := func(ns int64) metav1.Time {
		if ns <= 0 {
			return metav1.Time{}
		}
		return metav1.NewTime(time.Unix(0, ns).Truncate(time.Second))
	}
	out := &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, StartedAt: at(c.StartedAt), FinishedAt: at(c.FinishedAt), ContainerID: p.prefix(c.Id),
		Message: c.Message,
	}
	if out.Reason == "" {
		out.Reason = "Completed"
		if c.ExitCode != 0 {
			out.Reason = "Error"
		}
	}
	if text, ok := p.exitText[c.Id]; ok && text != "" {
		out.Message = text
	}
	return out
}

// phase sums the containers up. The caller holds mu.
func phase(api *corev1.Pod, status *corev1.PodStatus, plan plan, p *pod) corev1.PodPhase {
	for i, s := range status.InitContainerStatuses {
		if sidecar(&api.Spec.InitContainers[i]) {
			continue
		}
		ended := s.State.Terminated
		if ended == nil {
			ended = s.LastTerminationState.Terminated
		}
		if ended != nil && ended.ExitCode != 0 && api.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
	}
	ending := api.DeletionTimestamp != nil && len(p.live()) == 0 && !p.busy
	var waiting, running, stopped, succeeded int
	for _, s := range status.ContainerStatuses {
		switch {
		case s.State.Running != nil:
			running++
		case s.State.Terminated != nil:
			stopped++
			if s.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case s.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	if ending {
		if waiting == 0 && stopped == succeeded && stopped > 0 {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	switch {
	case !plan.initialized || waiting > 0:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case stopped > 0:
		if api.Spec.RestartPolicy == corev1.RestartPolicyAlways || api.Spec.RestartPolicy == "" || len(p.live()) > 0 {
			return corev1.PodRunning
		}
		if stopped == succeeded {
			return corev1.PodSucceeded
		}
		if api.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// conditions of the pod that this agent sets; the others stay. The caller holds mu.
func (n *Node) conditions(p *pod, api *corev1.Pod, out *corev1.PodStatus, plan plan) {
	truth := func(b bool) corev1.ConditionStatus {
		if b {
			return corev1.ConditionTrue
		}
		return corev1.ConditionFalse
	}
	var unready, uninitialized []string
	for _, s := range out.ContainerStatuses {
		if !s.Ready {
			unready = append(unready, s.Name)
		}
	}
	for i, s := range out.InitContainerStatuses {
		c := &api.Spec.InitContainers[i]
		done := s.Ready
		if sidecar(c) {
			done = s.Started != nil && *s.Started
			if !s.Ready {
				unready = append(unready, s.Name)
			}
		}
		if !done {
			uninitialized = append(uninitialized, s.Name)
		}
	}
	if len(out.ContainerStatuses) == 0 && out.Phase == corev1.PodFailed {
		for _, c := range api.Spec.Containers {
			unready = append(unready, c.Name)
		}
	}
	initialized := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if len(uninitialized) > 0 && !plan.initialized {
		initialized = corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionFalse, Reason: "ContainersNotInitialized", Message: fmt.Sprintf("containers with incomplete status: %v", uninitialized)}
	}
	ready := corev1.PodCondition{Type: corev1.ContainersReady, Status: truth(len(unready) == 0)}
	switch {
	case out.Phase == corev1.PodSucceeded:
		initialized.Status, initialized.Reason, initialized.Message = corev1.ConditionTrue, "PodCompleted", ""
		ready = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case out.Phase == corev1.PodFailed:
		ready = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}
	case len(unready) > 0:
		ready.Reason, ready.Message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	}
	podReady := ready
	podReady.Type = corev1.PodReady
	if ready.Status == corev1.ConditionTrue {
		if message := gates(api, out); message != "" {
			podReady.Status, podReady.Reason, podReady.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", message
		}
	}
	network := p.sandbox() != nil && p.network != nil && p.network.State == cri.PodSandboxState_SANDBOX_READY && (api.Spec.HostNetwork || len(podIPs(p.network)) > 0 || n.RootDir == "")
	set := append(make([]corev1.PodCondition, 0, 6),
		corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: truth(network && !p.finished)}, initialized, podReady, ready)
	if !slices.ContainsFunc(out.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }) {
		set = append(set, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	}
	if p.refusal != nil && p.refusal.reason == preempting {
		set = append(set, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
			Message: "Pod was preempted by Kubelet to accommodate a critical pod.",
		})
	}
	conditions := make([]corev1.PodCondition, 0, len(set)+len(out.Conditions))
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	for _, c := range set {
		c.LastTransitionTime = now
		if i := slices.IndexFunc(out.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type }); i >= 0 {
			old := out.Conditions[i]
			c.ObservedGeneration = old.ObservedGeneration
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			c.LastProbeTime = old.LastProbeTime
		}
		conditions = append(conditions, c)
	}
	for _, old := range out.Conditions {
		if !slices.ContainsFunc(set, func(c corev1.PodCondition) bool { return c.Type == old.Type }) {
			conditions = append(conditions, old)
		}
	}
	// The order in the API stays where only values change, so that an unchanged status is seen to be one.
	place := func(c corev1.PodCondition) int {
		return slices.IndexFunc(out.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
	}
	if len(conditions) == len(out.Conditions) && !slices.ContainsFunc(conditions, func(c corev1.PodCondition) bool { return place(c) < 0 }) {
		slices.SortFunc(conditions, func(a, b corev1.PodCondition) int { return place(a) - place(b) })
	}
	if !reflect.DeepEqual(conditions, out.Conditions) {
		out.Conditions = conditions
	}
}

// gates says which readiness gates are closed.
func gates(api *corev1.Pod, status *corev1.PodStatus) string {
	var messages []string
	for _, gate := range api.Spec.ReadinessGates {
		i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		switch {
		case i < 0:
			messages = append(messages, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case status.Conditions[i].Status != corev1.ConditionTrue:
			messages = append(messages, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, status.Conditions[i].Status))
		}
	}
	return strings.Join(messages, ", ")
}
