package node

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sync is one step of a pod: look, report, and start the job that the present state asks for.
func (n *Node) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	p := n.pod(uid)
	if p == nil {
		return 0, nil
	}
	p.mu.Lock()
	seen := p.jobs
	p.mu.Unlock()
	if err := n.refresh(ctx, p); err != nil {
		return 0, fmt.Errorf("look at pod %s: %w", uid, err)
	}
	api := p.object()
	if api == nil {
		return n.syncGone(p, seen)
	}
	n.readExits(p, api)
	n.admit(p, api)
	after := n.checkDeadline(p, api)
	plan := n.plan(p, api)
	n.syncProbes(p, api, plan)
	settled, err := n.report(ctx, p, api, plan)
	if err != nil {
		return 0, err
	}
	for _, d := range []time.Duration{plan.retry, settled} {
		if d > 0 && (after == 0 || d < after) {
			after = d
		}
	}
	n.work(p, api, plan, seen)
	return after, nil
}

// work starts the job of a plan unless one runs; its end brings the next step.
func (n *Node) work(p *pod, api *corev1.Pod, plan plan, seen int) {
	var job func(ctx context.Context)
	switch {
	case plan.held:
		return
	case plan.stopAll:
		job = func(ctx context.Context) { n.stopPod(ctx, p, api) }
	case plan.finish:
		job = func(ctx context.Context) { n.finishPod(ctx, p, api, plan) }
	case len(plan.stop) > 0:
		job = func(ctx context.Context) { n.stopContainers(ctx, p, api, plan.stop) }
	case plan.sandbox || len(plan.start) > 0:
		job = func(ctx context.Context) { n.startPod(ctx, p, api, plan) }
	case plan.volumes:
		job = func(ctx context.Context) { n.refreshPodVolumes(ctx, p, api) }
	default:
		return
	}
	n.run(p, seen, job)
}

// run starts a job of a pod, unless one runs or has ended since the caller looked: its end brings the next step.
func (n *Node) run(p *pod, seen int, job func(ctx context.Context)) {
	p.mu.Lock()
	if p.busy || p.jobs != seen {
		p.mu.Unlock()
		return
	}
	p.busy = true
	ctx, cancel := context.WithCancel(n.ctx)
	p.cancel = cancel
	p.mu.Unlock()
	n.jobs.Go(func() {
		defer cancel()
		job(ctx)
		p.mu.Lock()
		p.busy, p.cancel, p.dirty = false, nil, true
		p.jobs++
		p.mu.Unlock()
		if n.ctx.Err() == nil {
			n.queue.Add(p.uid)
		}
	})
}

// syncGone stops and forgets a pod that the API does not have (any more).
func (n *Node) syncGone(p *pod, seen int) (time.Duration, error) {
	n.mu.RLock()
	synced := n.synced
	n.mu.RUnlock()
	if !synced {
		return 0, nil // the API has not told everything yet
	}
	n.stopPodProbes(p)
	p.mu.Lock()
	busy, empty := p.busy, len(p.sandboxes) == 0 && len(p.containers) == 0
	clean := p.cleaned
	last := p.last
	p.mu.Unlock()
	if busy {
		return 0, nil
	}
	if empty && clean {
		n.mu.Lock()
		delete(n.byUID, p.uid)
		for id, uid := range n.sandboxes {
			if uid == p.uid {
				delete(n.sandboxes, id)
			}
		}
		n.mu.Unlock()
		n.sources.release(p.uid)
		return 0, nil
	}
	p.mu.Lock()
	failed := !p.retry.IsZero() && time.Now().Before(p.retry)
	retry := time.Until(p.retry)
	p.mu.Unlock()
	if failed {
		return retry, nil
	}
	n.run(p, seen, func(ctx context.Context) { n.removePod(ctx, p, last) })
	return 0, nil
}

func notFound(err error) bool { return status.Code(err) == codes.NotFound }

// checkDeadline refuses a pod whose activeDeadlineSeconds are over, and returns how long it has otherwise.
func (n *Node) checkDeadline(p *pod, api *corev1.Pod) time.Duration {
	if api.Spec.ActiveDeadlineSeconds == nil || p.refused() || terminal(api) {
		return 0
	}
	start := p.started
	if api.Status.StartTime != nil {
		start = api.Status.StartTime.Time
	}
	if start.IsZero() {
		return 0
	}
	left := time.Until(start.Add(time.Duration(*api.Spec.ActiveDeadlineSeconds) * time.Second))
	if left <= 0 {
		p.refuse(&refusal{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"})
		n.event(api, "", corev1.EventTypeNormal, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
		return 0
	}
	return left
}

func terminal(api *corev1.Pod) bool {
	return api.Status.Phase == corev1.PodSucceeded || api.Status.Phase == corev1.PodFailed
}
