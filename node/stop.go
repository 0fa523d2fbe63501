package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/env"
)

// defaultGrace is how long containers have to end when nothing says otherwise.
const defaultGrace = 30 * time.Second

// leastGrace is what a container gets at least after its hook used the grace period up.
const leastGrace = 2 * time.Second

// grace of a pod that ends: what its deletion says, else its specification.
func grace(api *corev1.Pod) time.Duration {
	switch {
	case api.DeletionTimestamp != nil && api.DeletionGracePeriodSeconds != nil:
		return time.Duration(*api.DeletionGracePeriodSeconds) * time.Second
	case api.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*api.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return defaultGrace
}

// stopPod stops a pod's containers: those proper all at once, then sidecars one by one, the last first. A deletion with a
// shorter grace that comes meanwhile shortens the rest.
func (n *Node) stopPod(ctx context.Context, p *pod, api *corev1.Pod) {
	p.mu.Lock()
	live := p.live()
	deadline := time.Now().Add(grace(api))
	if p.refusal != nil && p.refusal.reason == preempting {
		deadline = time.Now() // a critical pod waits
	}
	p.mu.Unlock()
	var sidecars []stopping
	var wg sync.WaitGroup
	for _, status := range live {
		name := status.Labels[labelContainerName]
		if status.State == cri.ContainerState_CONTAINER_CREATED {
			_ = n.Runtime.RemoveContainer(ctx, status.Id) // never started; what stays is seen again
			continue
		}
		s := stopping{status: status, spec: env.Find(api, name), reason: "Stopping container " + name}
		if s.spec != nil && sidecar(s.spec) {
			sidecars = append(sidecars, s)
			continue
		}
		wg.Go(func() { n.stopContainer(ctx, p, api, s, &deadline) })
	}
	wg.Wait()
	order := func(s stopping) int {
		return slices.IndexFunc(api.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == s.spec.Name })
	}
	slices.SortFunc(sidecars, func(a, b stopping) int { return order(b) - order(a) })
	for _, s := range sidecars {
		n.stopContainer(ctx, p, api, s, &deadline)
	}
}

// stopContainers stops single containers of a pod that goes on.
func (n *Node) stopContainers(ctx context.Context, p *pod, api *corev1.Pod, list []stopping) {
	var wg sync.WaitGroup
	for _, s := range list {
		if s.status.State == cri.ContainerState_CONTAINER_CREATED {
			// Never started: it leaves no trace but its number.
			if err := n.Runtime.RemoveContainer(ctx, s.status.Id); err != nil && ctx.Err() == nil {
				n.Log.Warn("container not removed", "pod", api.Namespace+"/"+api.Name, "err", err)
				p.mu.Lock()
				p.pause()
				p.mu.Unlock()
			}
			continue
		}
		wg.Go(func() { n.stopContainer(ctx, p, api, s, nil) })
	}
	wg.Wait()
}

// stopContainer runs the preStop hook and stops a container within its grace period, or by the deadline if there is one.
func (n *Node) stopContainer(ctx context.Context, p *pod, api *corev1.Pod, s stopping, deadline *time.Time) {
	p.mu.Lock()
	again := p.preStops[s.status.Id]
	if p.preStops == nil {
		p.preStops = map[string]bool{}
	}
	p.preStops[s.status.Id] = true
	p.mu.Unlock()
	name := s.status.Labels[labelContainerName]
	if s.spec != nil {
		name = s.spec.Name
	}
	whole := grace(api)
	if deadline != nil {
		whole = max(time.Until(*deadline), 0)
	}
	if s.grace != nil {
		whole = time.Duration(*s.grace) * time.Second
	}
	reason := s.reason
	if reason == "" {
		reason = "Stopping container " + name
	}
	if !again {
		n.event(api, name, corev1.EventTypeNormal, "Killing", reason)
	}
	end := time.Now().Add(whole)
	if s.spec != nil && s.spec.Lifecycle != nil && s.spec.Lifecycle.PreStop != nil && whole > 0 && !again && s.status.State != cri.ContainerState_CONTAINER_CREATED {
		hook, cancel := context.WithDeadline(ctx, end)
		p.mu.Lock()
		ips := podIPs(p.network)
		p.mu.Unlock()
		if _, err := n.runHook(hook, api, s.spec, s.status.Id, s.spec.Lifecycle.PreStop, ips); err != nil && ctx.Err() == nil {
			n.event(api, name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		cancel()
		whole = max(time.Until(end), leastGrace)
	}
	if err := n.Runtime.StopContainer(ctx, s.status.Id, whole); err != nil && !notFound(err) && ctx.Err() == nil {
		n.Log.Warn("container not stopped", "pod", api.Namespace+"/"+api.Name, "container", name, "err", err)
		n.event(api, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+rpcText(err))
		p.mu.Lock()
		p.pause()
		p.mu.Unlock()
	}
}

// finishPod cleans up after the last container has stopped, and lets the API forget a pod that it waits for.
func (n *Node) finishPod(ctx context.Context, p *pod, api *corev1.Pod, plan plan) {
	p.mu.Lock()
	finished := p.finished
	sandboxes := slices.Clone(p.sandboxes)
	p.mu.Unlock()
	if !finished {
		if err := n.tearDown(ctx, p, api, sandboxes); err != nil {
			n.failed(ctx, p, api, &podError{"FailedKillPod", fmt.Errorf("error killing pod: %w", err)})
			return
		}
		p.mu.Lock()
		p.finished = true
		p.mu.Unlock()
	}
	if !plan.delete {
		return
	}
	p.mu.Lock()
	reported := p.reported
	p.mu.Unlock()
	if reported == nil && !terminal(api) {
		return // the status of the end comes first
	}
	zero := int64(0)
	err := n.pods.Delete(ctx, api.Namespace, api.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &api.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
		n.Log.Warn("ended pod not deleted", "pod", api.Namespace+"/"+api.Name, "err", err)
		p.mu.Lock()
		p.pause()
		p.mu.Unlock()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleted = ctx.Err() == nil
}

// tearDown stops the sandboxes and takes volumes and cgroups away. Dead containers and logs stay until the pod is gone.
func (n *Node) tearDown(ctx context.Context, p *pod, api *corev1.Pod, sandboxes []*cri.PodSandbox) error {
	for _, s := range sandboxes {
		if err := n.Runtime.StopPodSandbox(ctx, s.Id); err != nil && !notFound(err) {
			return err
		}
	}
	if n.volumes != nil {
		if err := n.volumes.TearDown(ctx, p.uid); err != nil {
			return err
		}
		p.mu.Lock()
		p.mounted = false
		p.mu.Unlock()
	}
	if n.cgroups != nil {
		for _, class := range []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort} {
			if err := n.cgroups.Remove(n.cgroups.Path(p.uid, class)); err != nil {
				return err
			}
		}
	}
	n.sources.release(p.uid)
	return nil
}

// removePod takes away everything of a pod that the API does not have any more.
func (n *Node) removePod(ctx context.Context, p *pod, last *corev1.Pod) {
	fail := func(err error) {
		if ctx.Err() != nil {
			return
		}
		n.Log.Warn("pod not removed", "pod", last.Namespace+"/"+last.Name, "err", err)
		p.mu.Lock()
		p.pause()
		p.mu.Unlock()
	}
	p.mu.Lock()
	live := p.live()
	sandboxes := slices.Clone(p.sandboxes)
	p.mu.Unlock()
	if len(live) > 0 {
		n.stopPod(ctx, p, last)
	}
	if err := n.tearDown(ctx, p, last, sandboxes); err != nil {
		fail(err)
		return
	}
	for _, s := range sandboxes {
		if err := n.Runtime.RemovePodSandbox(ctx, s.Id); err != nil && !notFound(err) {
			fail(err)
			return
		}
	}
	p.mu.Lock()
	containers := p.containers
	p.mu.Unlock()
	for _, list := range containers {
		for _, c := range list {
			if err := n.Runtime.RemoveContainer(ctx, c.Id); err != nil && !notFound(err) {
				fail(err)
				return
			}
		}
	}
	if n.RootDir != "" {
		for _, dir := range []string{n.podLogDir(last), n.podDir(last)} {
			if err := os.RemoveAll(dir); err != nil {
				fail(err)
				return
			}
		}
	}
	p.mu.Lock()
	n.userns.give(p.usernsAt)
	p.cleaned = true
	p.mu.Unlock()
}
