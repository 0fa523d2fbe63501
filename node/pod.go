package node

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels and annotations by which the agent knows its sandboxes and containers again.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationTerminationPath   = "io.kubernetes.container.terminationMessagePath"
	annotationTerminationPolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPodGrace          = "io.kubernetes.pod.terminationGracePeriod"
	annotationPodDeletionGrace  = "io.kubernetes.pod.deletionGracePeriod"
)

// pod is the state machine of one pod. The queue lets one worker at a time have it; the mutex guards what events, jobs
// and probes touch besides.
type pod struct {
	uid types.UID
	// scheme of container IDs in the API.
	scheme string

	mu  sync.Mutex
	api *corev1.Pod // as in the API; nil once it is gone
	// last is what the API had before, for pods that are gone; only names are known of those found after a restart.
	last *corev1.Pod
	// adopted pods were found running at the start: they have been admitted before.
	adopted bool
	// dirty says that the runtime must be asked again.
	dirty bool
	// busy says that a job runs, which cancel ends.
	busy bool
	// jobs counts those that have ended, so that no step acts on what it saw before the last of them.
	jobs   int
	cancel context.CancelFunc
	// refreshVolumes says that a source of volumes has changed, volumesAt when one grows old.
	refreshVolumes bool
	volumesAt      time.Time

	sandboxes  []*cri.PodSandbox // newest first
	network    *cri.PodSandboxStatus
	containers map[string][]*cri.ContainerStatus // by name, newest first

	// waiting is why a container does not run, by name.
	waiting map[string]corev1.ContainerStateWaiting
	backoff map[string]*backoff
	retry   time.Time // when a failed start may be tried again
	retries int
	probes  map[string]*containerProbes
	// hooking containers are in their postStart hook, by name.
	hooking map[string]string

	admitted bool
	started  time.Time
	mounted  bool
	refusal  *refusal
	finished bool // everything is stopped and cleaned up
	cleaned  bool
	reported *corev1.PodStatus
	deleted  bool              // the API has been asked to forget it
	preStops map[string]bool   // containers whose preStop hook has begun
	exitText map[string]string // termination messages by container ID
	usernsAt uint32
}

// refusal is why a pod may not run (any more) on this node.
type refusal struct{ reason, message string }

func newPod(uid types.UID, scheme string) *pod {
	return &pod{uid: uid, scheme: scheme, dirty: true}
}

func (p *pod) object() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api
}

// interrupt ends the present job early, for one that fits the new state. The caller holds mu.
func (p *pod) interrupt() {
	p.retry, p.retries = time.Time{}, 0
	if p.cancel != nil {
		p.cancel()
	}
}

func (p *pod) markDirty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = true
}

// newest container of a name, or nil. The caller holds mu.
func (p *pod) newest(name string) *cri.ContainerStatus {
	if list := p.containers[name]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// sandbox that is ready, or nil. The caller holds mu.
func (p *pod) sandbox() *cri.PodSandbox {
	if len(p.sandboxes) > 0 && p.sandboxes[0].State == cri.PodSandboxState_SANDBOX_READY {
		return p.sandboxes[0]
	}
	return nil
}

// live containers, in no order. The caller holds mu.
func (p *pod) live() []*cri.ContainerStatus {
	var out []*cri.ContainerStatus
	for _, list := range p.containers {
		for _, c := range list {
			if c.State != cri.ContainerState_CONTAINER_EXITED {
				out = append(out, c)
			}
		}
	}
	return out
}

// differs reports whether the runtime's states are not those last seen.
func (p *pod) differs(states map[string]int32) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]int32{}
	for _, s := range p.sandboxes {
		known[s.Id] = int32(s.State)
	}
	for _, list := range p.containers {
		for _, c := range list {
			known[c.Id] = int32(c.State)
		}
	}
	return !maps.Equal(known, states)
}

// refresh asks the runtime what there is of the pod, when something may have changed.
func (n *Node) refresh(ctx context.Context, p *pod) error {
	p.mu.Lock()
	if !p.dirty {
		p.mu.Unlock()
		return nil
	}
	p.dirty = false
	known := map[string]*cri.ContainerStatus{}
	for _, list := range p.containers {
		for _, c := range list {
			known[c.Id] = c
		}
	}
	network := p.network
	p.mu.Unlock()

	sandboxes, containers, network, err := n.observe(ctx, p.uid, known, network)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.dirty = true
		return err
	}
	p.sandboxes, p.containers, p.network = sandboxes, containers, network
	if p.usernsAt == 0 {
		if ids := network.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids(); len(ids) > 0 {
			p.usernsAt = ids[0].HostId
			n.userns.keep(p.usernsAt)
		}
	}
	return nil
}

func (n *Node) observe(ctx context.Context, uid types.UID, known map[string]*cri.ContainerStatus, network *cri.PodSandboxStatus) ([]*cri.PodSandbox, map[string][]*cri.ContainerStatus, *cri.PodSandboxStatus, error) {
	selector := map[string]string{labelPodUID: string(uid)}
	sandboxes, err := n.Runtime.ListPodSandbox(ctx, &cri.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, nil, nil, err
	}
	slices.SortFunc(sandboxes, func(a, b *cri.PodSandbox) int { return int(min(max(b.CreatedAt-a.CreatedAt, -1), 1)) })
	list, err := n.Runtime.ListContainers(ctx, &cri.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, nil, nil, err
	}
	containers := map[string][]*cri.ContainerStatus{}
	for _, c := range list {
		status := known[c.Id]
		if status == nil || status.State != c.State {
			if status, err = n.Runtime.ContainerStatus(ctx, c.Id); err != nil {
				if notFound(err) {
					continue
				}
				return nil, nil, nil, err
			}
		}
		name := c.Labels[labelContainerName]
		containers[name] = append(containers[name], status)
	}
	for _, list := range containers {
		slices.SortFunc(list, func(a, b *cri.ContainerStatus) int { return int(min(max(b.CreatedAt-a.CreatedAt, -1), 1)) })
	}
	n.mu.Lock()
	for _, s := range sandboxes {
		n.sandboxes[s.Id] = uid
	}
	n.mu.Unlock()
	if len(sandboxes) == 0 {
		return sandboxes, containers, nil, nil
	}
	if network == nil || network.Id != sandboxes[0].Id || network.State != sandboxes[0].State {
		status, err := n.Runtime.PodSandboxStatus(ctx, sandboxes[0].Id)
		if err != nil && !notFound(err) {
			return nil, nil, nil, err
		}
		if err == nil {
			if network != nil && network.Id == status.Id && len(podIPs(status)) == 0 {
				// A sandbox that has stopped has lost its addresses; the pod's status keeps them.
				status.Network = network.Network
			}
			network = status
		}
	}
	return sandboxes, containers, network, nil
}

func podIPs(s *cri.PodSandboxStatus) []string {
	if s == nil || s.Network == nil || s.Network.Ip == "" {
		return nil
	}
	out := []string{s.Network.Ip}
	for _, ip := range s.Network.AdditionalIps {
		out = append(out, ip.Ip)
	}
	return out
}

// backoff doubles the wait between attempts, as upstream's restarts and pulls do.
type backoff struct {
	wait time.Duration
	last time.Time
}

const (
	backoffFirst = 10 * time.Second
	backoffMost  = 5 * time.Minute
)

// next counts an attempt after one that ended at the given time. The caller holds mu.
func (p *pod) next(key string, ended time.Time) {
	now := time.Now()
	b := p.backoff[key]
	switch {
	case b == nil || ended.Sub(b.last) > 2*backoffMost:
		if p.backoff == nil {
			p.backoff = map[string]*backoff{}
		}
		p.backoff[key] = &backoff{backoffFirst, now}
	default:
		b.wait, b.last = min(2*b.wait, backoffMost), now
	}
}

// inBackoff returns how long to wait yet, given when the last attempt ended. The caller holds mu.
func (p *pod) inBackoff(key string, since time.Time) (left, whole time.Duration) {
	b := p.backoff[key]
	if b == nil || since.Sub(b.last) > 2*backoffMost {
		return 0, 0
	}
	return max(time.Until(since.Add(b.wait)), 0), b.wait
}
