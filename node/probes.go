package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/probe"
)

// Kinds of probes, as messages name them.
const (
	probeStartup   = "startup"
	probeReadiness = "readiness"
	probeLiveness  = "liveness"
)

// Words of a probe's result.
const (
	probeUnknown = iota
	probeSuccess
	probeFailure
)

// execLimit is how much of a command's output is kept for the event.
const execLimit = 10 << 10

// probesLate is the age of a container at its first probe from which the agent must have been away.
const probesLate = 10 * time.Second

// execSlack is how much longer than the command's timeout the runtime may take to tell of it.
const execSlack = 5 * time.Second

// containerProbes are the probes of one container run, by kind. They are guarded by the pod's mutex.
type containerProbes struct {
	id    string
	since time.Time
	// late says that the container ran long before its probes: the agent was restarted.
	late  bool
	kinds map[string]*prober
}

// prober is one probe of one container run: a timer while it waits, a goroutine while it asks.
type prober struct {
	kind    string
	spec    *corev1.Probe
	timer   *time.Timer
	stopped bool
	first   bool
	last    int // result of the last attempt
	run     int32
	result  int
	cancel  context.CancelFunc
}

// syncProbes has exactly the probes running that the pod's running containers want.
func (n *Node) syncProbes(p *pod, api *corev1.Pod, plan plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]bool{}
	each := func(c *corev1.Container) {
		status := p.newest(c.Name)
		if status == nil || status.State != cri.ContainerState_CONTAINER_RUNNING || (c.StartupProbe == nil && c.ReadinessProbe == nil && c.LivenessProbe == nil) {
			return
		}
		seen[c.Name] = true
		cp := p.probes[c.Name]
		if cp == nil || cp.id != status.Id {
			if cp != nil {
				cp.stop()
			}
			since := time.Unix(0, status.StartedAt)
			cp = &containerProbes{id: status.Id, since: since, late: time.Since(since) > probesLate, kinds: map[string]*prober{}}
			if p.probes == nil {
				p.probes = map[string]*containerProbes{}
			}
			p.probes[c.Name] = cp
		}
		started := p.hasStarted(api, c, status.Id)
		stopping := api.DeletionTimestamp != nil || p.refusal != nil
		for kind, spec := range map[string]*corev1.Probe{probeStartup: c.StartupProbe, probeReadiness: c.ReadinessProbe, probeLiveness: c.LivenessProbe} {
			pr := cp.kinds[kind]
			want := spec != nil && (kind == probeStartup || started) && !(stopping && kind != probeReadiness)
			if kind == probeStartup && started {
				want = false
			}
			switch {
			case want && pr == nil:
				pr = &prober{kind: kind, spec: spec, first: true}
				cp.kinds[kind] = pr
				n.scheduleProbe(p, api, c, cp, pr)
			case !want && pr != nil && !pr.stopped:
				pr.stop()
			}
		}
	}
	for i := range api.Spec.InitContainers {
		if sidecar(&api.Spec.InitContainers[i]) {
			each(&api.Spec.InitContainers[i])
		}
	}
	for i := range api.Spec.Containers {
		each(&api.Spec.Containers[i])
	}
	for name, cp := range p.probes {
		if !seen[name] {
			cp.stop()
			delete(p.probes, name)
		}
	}
}

func (cp *containerProbes) stop() {
	for _, pr := range cp.kinds {
		pr.stop()
	}
}

func (pr *prober) stop() {
	pr.stopped = true
	if pr.timer != nil {
		pr.timer.Stop()
	}
	if pr.cancel != nil {
		pr.cancel()
	}
}

// scheduleProbe arms the timer for the next attempt. The caller holds the pod's mutex.
func (n *Node) scheduleProbe(p *pod, api *corev1.Pod, c *corev1.Container, cp *containerProbes, pr *prober) {
	period := time.Duration(max(pr.spec.PeriodSeconds, 1)) * time.Second
	wait := period
	if pr.first {
		pr.first = false
		wait = max(time.Until(cp.since.Add(time.Duration(pr.spec.InitialDelaySeconds)*time.Second)), 0)
		if cp.late && wait == 0 {
			wait = rand.N(period) // not the probes of all containers at once
		}
	}
	pr.timer = time.AfterFunc(wait, func() {
		p.mu.Lock()
		if pr.stopped || n.ctx.Err() != nil {
			p.mu.Unlock()
			return
		}
		timeout := time.Duration(max(pr.spec.TimeoutSeconds, 1)) * time.Second
		patience := timeout
		if pr.spec.Exec != nil {
			patience += execSlack // the runtime ends the command in time and says so
		}
		ctx, cancel := context.WithTimeout(n.ctx, patience)
		pr.cancel = cancel
		ips := podIPs(p.network)
		object := p.api
		p.mu.Unlock()
		if object == nil {
			object = api
		}
		n.attempt(ctx, p, object, c, cp, pr, ips, timeout)
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !pr.stopped {
			n.scheduleProbe(p, object, c, cp, pr)
		}
	})
}

// attempt asks once and counts the answer towards the thresholds.
func (n *Node) attempt(ctx context.Context, p *pod, api *corev1.Pod, c *corev1.Container, cp *containerProbes, pr *prober, ips []string, timeout time.Duration) {
	if api.Spec.HostNetwork && len(n.Addresses) > 0 {
		ips = n.hostIPs()
	}
	output, err := n.ask(ctx, cp.id, c, pr.spec, ips, timeout)
	if n.ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	if pr.stopped {
		p.mu.Unlock()
		return
	}
	name := strings.ToUpper(pr.kind[:1]) + pr.kind[1:]
	if broken, ok := errors.AsType[*unasked](err); ok {
		// That nobody could ask says nothing about the container.
		p.mu.Unlock()
		n.event(api, c.Name, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe errored: %v", name, broken.err))
		return
	}
	now, threshold := probeSuccess, pr.spec.SuccessThreshold
	if err != nil {
		now, threshold = probeFailure, pr.spec.FailureThreshold
	}
	if now == pr.last {
		pr.run++
	} else {
		pr.last, pr.run = now, 1
	}
	changed := false
	if pr.run >= max(threshold, 1) && pr.result != now {
		pr.result, changed = now, true
	}
	p.mu.Unlock()
	if err != nil {
		n.event(api, c.Name, corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("%s probe failed: %s", name, probeText(output, err)))
	}
	if err == nil && strings.HasPrefix(output, probe.Redirected) {
		n.event(api, c.Name, corev1.EventTypeWarning, "ProbeWarning", fmt.Sprintf("%s probe warning: %s", name, output))
	}
	if changed {
		n.queue.Add(p.uid)
	}
}

func probeText(output string, err error) string {
	if output != "" && errors.As(err, new(exitError)) {
		return output
	}
	return err.Error()
}

// unasked is why a probe got no answer that counts.
type unasked struct{ err error }

func (u *unasked) Error() string { return u.err.Error() }

// exitError is a command that answered, but not well.
type exitError int32

func (e exitError) Error() string { return "command exited with " + strconv.Itoa(int(e)) }

func (n *Node) ask(ctx context.Context, id string, c *corev1.Container, spec *corev1.Probe, ips []string, timeout time.Duration) (string, error) {
	switch {
	case spec.Exec != nil:
		stdout, stderr, code, err := n.Runtime.ExecSync(ctx, id, spec.Exec.Command, timeout)
		output := string(stdout) + string(stderr)
		output = output[:min(len(output), execLimit)]
		if err != nil {
			if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded || strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
				return "", fmt.Errorf("command timed out: %q timed out after %v", strings.Join(spec.Exec.Command, " "), timeout)
			}
			return "", &unasked{errors.New(rpcText(err))}
		}
		if code != 0 {
			return output, exitError(code)
		}
		return output, nil
	case n.Hollow:
		return "", nil
	case spec.HTTPGet != nil:
		target, header, host, err := httpTarget(c, spec.HTTPGet, ips)
		if err != nil {
			return "", &unasked{err}
		}
		if _, ok := header["User-Agent"]; !ok {
			header.Set("User-Agent", "kube-probe/1.31")
		}
		return probe.HTTP(ctx, target, header, host)
	case spec.TCPSocket != nil:
		port, err := portOf(c, spec.TCPSocket.Port)
		if err != nil {
			return "", &unasked{err}
		}
		host := spec.TCPSocket.Host
		if host == "" {
			if len(ips) == 0 {
				return "", &unasked{errors.New("pod has no address")}
			}
			host = ips[0]
		}
		return "", probe.TCP(ctx, net.JoinHostPort(host, strconv.Itoa(port)))
	case spec.GRPC != nil:
		if len(ips) == 0 {
			return "", &unasked{errors.New("pod has no address")}
		}
		service := ""
		if spec.GRPC.Service != nil {
			service = *spec.GRPC.Service
		}
		return "", probe.GRPC(ctx, net.JoinHostPort(ips[0], strconv.Itoa(int(spec.GRPC.Port))), service, timeout)
	}
	return "", &unasked{errors.New("missing probe handler for " + c.Name)}
}

// probeSucceeded reports whether a container run's probe has last been good. The caller holds mu.
func (p *pod) probeSucceeded(container, kind, id string) bool {
	cp := p.probes[container]
	return cp != nil && cp.id == id && cp.kinds[kind] != nil && cp.kinds[kind].result == probeSuccess
}

// probeFailed names the probe for which a container run must end, with its own grace period if it has one. The caller
// holds mu.
func (p *pod) probeFailed(c *corev1.Container, id string) (string, *int64) {
	cp := p.probes[c.Name]
	if cp == nil || cp.id != id {
		return "", nil
	}
	for _, kind := range []string{probeLiveness, probeStartup} {
		if pr := cp.kinds[kind]; pr != nil && pr.result == probeFailure {
			return kind, pr.spec.TerminationGracePeriodSeconds
		}
	}
	return "", nil
}

// stopPodProbes ends the probes of a pod.
func (n *Node) stopPodProbes(p *pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cp := range p.probes {
		cp.stop()
	}
	p.probes = nil
}

func (n *Node) stopProbes() {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, p := range n.byUID {
		n.stopPodProbes(p)
	}
}
