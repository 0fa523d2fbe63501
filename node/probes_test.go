package node_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/simulated"
)

// answers is a program in containers whose commands fail when they are in the set.
type answers struct {
	mu   sync.Mutex
	fail []string
}

func failing(commands ...string) *answers { return &answers{fail: commands} }

func (a *answers) set(commands ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = commands
}

func (a *answers) config() simulated.Config {
	return simulated.Config{Exec: func(c *cri.ContainerStatus, command []string) ([]byte, []byte, int32, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if slices.Contains(a.fail, command[0]) {
			return []byte("out of order"), nil, 1, nil
		}
		return nil, nil, 0, nil
	}}
}

func TestReadiness(t *testing.T) {
	program := failing("ready")
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) { c.ReadinessProbe = execProbe("ready") })))
		w.after(3 * time.Second)
		w.wantPhase("p", corev1.PodRunning)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		w.wantEvent("Unhealthy", "spec.containers{c} Readiness probe failed: out of order")
		if s := w.container("p", "c"); s.Ready || s.Started == nil || !*s.Started {
			t.Errorf("container is %+v", s)
		}
		program.set()
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		program.set("ready")
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		if have := w.container("p", "c").RestartCount; have != 0 {
			t.Errorf("restarts: %d, want none", have)
		}
	})
}

func TestLiveness(t *testing.T) {
	program := failing()
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.LivenessProbe = execProbe("live")
			c.LivenessProbe.FailureThreshold = 3
			c.LivenessProbe.TerminationGracePeriodSeconds = new(int64(7))
		})))
		w.after(time.Minute)
		if have := w.container("p", "c").RestartCount; have != 0 {
			t.Fatalf("restarts of a healthy container: %d", have)
		}
		program.set("live")
		w.after(1500 * time.Millisecond)
		if have := w.container("p", "c").RestartCount; have != 0 {
			t.Errorf("restarts before the threshold: %d", have)
		}
		w.after(2 * time.Second)
		program.set()
		w.after(time.Second)
		if s := w.container("p", "c"); s.RestartCount != 1 || s.State.Running == nil {
			t.Errorf("container is %+v", s)
		}
		w.wantEvent("Unhealthy", "spec.containers{c} Liveness probe failed: out of order")
		w.wantEvent("Killing", "spec.containers{c} Container c failed liveness probe, will be restarted")
		if stops := w.runtime.stopped(); len(stops) != 1 || stops[0].grace != 7*time.Second {
			t.Errorf("the container was stopped as %+v, want once with the probe's grace period", stops)
		}
	})
}

func TestStartup(t *testing.T) {
	program := failing("start", "live")
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.StartupProbe = execProbe("start")
			c.StartupProbe.FailureThreshold = 10
			c.LivenessProbe = execProbe("live")
			c.ReadinessProbe = execProbe("ready")
		})))
		w.after(5 * time.Second)
		s := w.container("p", "c")
		if s.Ready || s.Started == nil || *s.Started || s.RestartCount != 0 {
			t.Errorf("container while starting is %+v", s)
		}
		w.wantEvent("Unhealthy", "spec.containers{c} Startup probe failed: out of order")
		program.set()
		w.after(3 * time.Second)
		if s := w.container("p", "c"); !s.Ready || !*s.Started || s.RestartCount != 0 {
			t.Errorf("container that started is %+v", s)
		}
	})
}

func TestStartupFails(t *testing.T) {
	program := failing("start")
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", restartPolicy(corev1.RestartPolicyNever), first(func(c *corev1.Container) {
			c.StartupProbe = execProbe("start")
			c.StartupProbe.FailureThreshold = 2
		})))
		w.after(10 * time.Second)
		w.wantEvent("Killing", "spec.containers{c} Container c failed startup probe")
		if s := w.container("p", "c"); s.State.Terminated == nil {
			t.Errorf("container is %+v, want it ended", s)
		}
		p := w.pod("p")
		if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			t.Errorf("phase is %s", p.Status.Phase)
		}
	})
}

func TestInitialDelay(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.ReadinessProbe = execProbe("ready")
			c.ReadinessProbe.InitialDelaySeconds = 20
		})))
		w.after(15 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		w.after(7 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

// TestSidecarStartup checks that a sidecar's startup probe holds back what comes after it.
func TestSidecarStartup(t *testing.T) {
	program := failing("start")
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", sidecar("side"), func(p *corev1.Pod) {
			p.Spec.InitContainers[0].StartupProbe = execProbe("start")
			p.Spec.InitContainers[0].StartupProbe.FailureThreshold = 100
		}))
		w.after(5 * time.Second)
		if len(w.running("c")) != 0 {
			t.Error("the pod's container runs before its sidecar has started")
		}
		program.set()
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

// TestReadyAfterStartup checks that readiness is asked for as soon as a slow container has started.
func TestReadyAfterStartup(t *testing.T) {
	program := failing("start")
	inWorld(t, program.config(), func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.StartupProbe = execProbe("start")
			c.StartupProbe.FailureThreshold = 100
			c.ReadinessProbe = execProbe("ready")
			c.ReadinessProbe.PeriodSeconds = 60
		})))
		w.after(30 * time.Second)
		program.set()
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

// TestProbeErrors checks that a runtime that cannot run commands does no harm to containers.
func TestProbeErrors(t *testing.T) {
	var broken atomic.Bool
	config := simulated.Config{Fault: func(call, subject string) error {
		if call == "ExecSync" && broken.Load() {
			return errUnknown("not today")
		}
		return nil
	}}
	inWorld(t, config, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) { c.LivenessProbe, c.ReadinessProbe = execProbe("live"), execProbe("ready") })))
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		broken.Store(true)
		w.after(30 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		if have := w.container("p", "c").RestartCount; have != 0 {
			t.Errorf("restarts: %d, want none", have)
		}
		w.wantEvent("Unhealthy", "spec.containers{c} Liveness probe errored: rpc error: code = Unknown desc = not today")
		broken.Store(false)
		w.after(2 * time.Second)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

// TestProbesAdopted checks that a restart of the agent does not make a ready pod unready.
func TestProbesAdopted(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.StartupProbe, c.ReadinessProbe = execProbe("start"), execProbe("ready")
			c.ReadinessProbe.PeriodSeconds = 60
		})))
		w.after(time.Minute)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		w.stop()
		w.api.Calls()
		w.start(nil)
		w.after(3 * time.Minute)
		for _, c := range w.api.Calls() {
			if c.Resource.Kind == "Pod" {
				t.Errorf("the restart wrote the pod: %s %s", c.Verb, c.Subresource)
			}
		}
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}
