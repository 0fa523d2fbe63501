package node_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/client/clientfake"
	"proa/node/simulated"
)

func TestPodRuns(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p"))
		if p.Status.Phase != corev1.PodRunning || p.Status.PodIP != "10.1.0.2" || p.Status.HostIP != "192.0.2.1" || p.Status.QOSClass != corev1.PodQOSBestEffort || p.Status.StartTime == nil {
			t.Errorf("status is %+v", p.Status)
		}
		if diff := cmp.Diff([]corev1.PodIP{{IP: "10.1.0.2"}}, p.Status.PodIPs); diff != "" {
			t.Errorf("pod addresses (-want +have):\n%s", diff)
		}
		if diff := cmp.Diff([]corev1.HostIP{{IP: "192.0.2.1"}}, p.Status.HostIPs); diff != "" {
			t.Errorf("host addresses (-want +have):\n%s", diff)
		}
		for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			w.wantCondition("p", kind, corev1.ConditionTrue, "")
		}
		s := w.container("p", "c")
		if !s.Ready || s.Started == nil || !*s.Started || s.State.Running == nil || s.RestartCount != 0 || s.Image != "registry.k8s.io/pause:3.10" || s.ImageID == "" {
			t.Errorf("container status is %+v", s)
		}
		if want := "simulated://" + w.running("c")[0].Id; s.ContainerID != want {
			t.Errorf("container id is %s, want %s", s.ContainerID, want)
		}
		w.wantEvent("Pulling", `spec.containers{c} Pulling image "registry.k8s.io/pause:3.10"`)
		w.wantEvent("Created", "spec.containers{c} Created container c")
		w.wantEvent("Started", "spec.containers{c} Started container c")
		if p, ok := w.agent.Pod("default", "p"); !ok || p.Name != "p" {
			t.Errorf("the agent does not know its pod")
		}
		count := 0
		for range w.agent.Pods() {
			count++
		}
		if count != 1 {
			t.Errorf("the agent knows %d pods, want 1", count)
		}
	})
}

// TestIdle checks that a pod at rest causes no writes.
func TestIdle(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) { c.ReadinessProbe = execProbe("ok") })))
		w.after(3 * time.Second)
		w.api.Calls()
		w.after(time.Hour)
		writes := map[string]int{}
		for _, call := range w.api.Calls() {
			writes[call.Resource.Kind]++
		}
		if writes["Pod"] != 0 || writes["Event"] != 0 {
			t.Errorf("an hour's rest wrote %v", writes)
		}
		if writes["Lease"] < 300 || writes["Lease"] > 370 || writes["Node"] > 13 {
			t.Errorf("an hour's heartbeats wrote %v", writes)
		}
	})
}

// TestFewWrites bounds what a pod's start costs the API.
func TestFewWrites(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.api.Calls()
		w.run(newPod("p"))
		writes := 0
		for _, call := range w.api.Calls() {
			if call.Resource.Kind == "Pod" && call.Verb != "create" {
				writes++
			}
		}
		if writes > 3 {
			t.Errorf("bringing a pod up took %d writes of it, want at most 3", writes)
		}
	})
}

func TestEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy corev1.RestartPolicy
		code   int32
		oom    bool
		phase  corev1.PodPhase
		reason string
		ready  string // reason of the Ready condition
	}{
		{name: "never, well", policy: corev1.RestartPolicyNever, phase: corev1.PodSucceeded, reason: "Completed", ready: "PodCompleted"},
		{name: "never, badly", policy: corev1.RestartPolicyNever, code: 3, phase: corev1.PodFailed, reason: "Error", ready: "PodFailed"},
		{name: "never, out of memory", policy: corev1.RestartPolicyNever, code: 137, oom: true, phase: corev1.PodFailed, reason: "OOMKilled", ready: "PodFailed"},
		{name: "on failure, well", policy: corev1.RestartPolicyOnFailure, phase: corev1.PodSucceeded, reason: "Completed", ready: "PodCompleted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, simulated.Config{}, func(w *world) {
				w.run(newPod("p", restartPolicy(test.policy)))
				if test.oom {
					if err := w.runtime.OOMKill(w.running("c")[0].Id); err != nil {
						t.Fatal(err)
					}
					w.after(0)
				} else {
					w.exit("c", test.code)
				}
				w.wantPhase("p", test.phase)
				w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, test.ready)
				w.wantCondition("p", corev1.ContainersReady, corev1.ConditionFalse, test.ready)
				end := w.container("p", "c").State.Terminated
				if end == nil || end.ExitCode != test.code || end.Reason != test.reason || end.StartedAt.IsZero() || end.FinishedAt.IsZero() || end.ContainerID == "" {
					t.Errorf("state is %+v", w.container("p", "c").State)
				}
				// What has ended stays so, and its sandbox is stopped.
				w.after(time.Hour)
				if have := len(w.runtime.configs("c")); have != 1 {
					t.Errorf("%d containers were made, want 1", have)
				}
				boxes, _ := w.runtime.ListPodSandbox(t.Context(), &cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}})
				if len(boxes) != 0 {
					t.Errorf("the sandbox still runs")
				}
			})
		})
	}
}

func TestTwoContainersOneEnds(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", restartPolicy(corev1.RestartPolicyNever), container("d")))
		w.exit("c", 0)
		w.wantPhase("p", corev1.PodRunning)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		w.exit("d", 1)
		w.wantPhase("p", corev1.PodFailed)
	})
}

// TestBackoff follows a crashing container: started again at once, then after 10 s, 20 s and so on.
func TestBackoff(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p", annotate(simulated.AnnotationExitAfter, "2s"), annotate(simulated.AnnotationExitCode, "1")))
		w.after(3 * time.Second)
		s := w.container("p", "c")
		if s.RestartCount != 1 || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 1 {
			t.Fatalf("after the first crash the status is %+v", s)
		}
		w.after(2 * time.Second)
		w.wantWaiting("p", "c", "CrashLoopBackOff", "back-off 10s restarting failed container=c pod=p_default("+string(p.UID)+")")
		w.wantEvent("BackOff", "spec.containers{c} Back-off restarting failed container c in pod p_default("+string(p.UID)+")")
		w.wantPhase("p", corev1.PodRunning)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
		w.after(5 * time.Second)
		if have := w.container("p", "c").RestartCount; have != 1 {
			t.Errorf("restarts after half the back-off: %d, want 1", have)
		}
		w.after(5 * time.Second)
		if have := w.container("p", "c").RestartCount; have != 2 {
			t.Errorf("restarts after the back-off: %d, want 2", have)
		}
		w.after(3 * time.Second)
		w.wantWaiting("p", "c", "CrashLoopBackOff", "back-off 20s restarting failed container=c pod=p_default("+string(p.UID)+")")
		w.after(time.Hour)
		w.wantWaiting("p", "c", "CrashLoopBackOff", "back-off 5m0s restarting failed container=c pod=p_default("+string(p.UID)+")")
		if have := w.container("p", "c").RestartCount; have < 14 || have > 18 {
			t.Errorf("restarts in an hour: %d", have)
		}
		list, err := w.runtime.ListContainers(t.Context(), nil)
		if err != nil || len(list) > 2 {
			t.Errorf("%d containers are kept (%v), want the last two at most", len(list), err)
		}
	})
}

// TestBackoffNewImage checks that a new image is tried at once.
func TestBackoffNewImage(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", annotate(simulated.AnnotationExitAfter, "2s")))
		w.after(2 * time.Minute)
		p := w.pod("p").DeepCopy()
		if s := w.container("p", "c"); s.State.Waiting == nil {
			t.Fatalf("container is %+v", s)
		}
		p.Spec.Containers[0].Image = "registry.k8s.io/pause:3.11"
		w.api.Put(p)
		w.after(time.Second)
		if s := w.container("p", "c"); s.State.Running == nil || s.Image != "registry.k8s.io/pause:3.11" {
			t.Errorf("container is %+v", s)
		}
	})
}

// TestBackoffForgotten checks that a container that ran long enough is started again at once.
func TestBackoffForgotten(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p"))
		w.exit("c", 1)
		w.after(11 * time.Minute)
		w.exit("c", 1)
		w.after(time.Second)
		if s := w.container("p", "c"); s.State.Running == nil || s.RestartCount != 2 {
			t.Errorf("status is %+v", s)
		}
	})
}

func TestInit(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", initContainer("one"), initContainer("two")))
		w.wantPhase("p", corev1.PodPending)
		w.wantCondition("p", corev1.PodInitialized, corev1.ConditionFalse, "ContainersNotInitialized")
		w.wantWaiting("p", "two", "PodInitializing", "")
		w.wantWaiting("p", "c", "PodInitializing", "")
		if s := w.container("p", "one"); s.State.Running == nil || s.Ready {
			t.Errorf("first init container is %+v", s)
		}
		w.exit("one", 0)
		if s := w.container("p", "one"); s.State.Terminated == nil || !s.Ready || s.State.Terminated.Reason != "Completed" {
			t.Errorf("first init container is %+v", s)
		}
		w.wantPhase("p", corev1.PodPending)
		w.exit("two", 0)
		w.wantPhase("p", corev1.PodRunning)
		w.wantCondition("p", corev1.PodInitialized, corev1.ConditionTrue, "")
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

func TestInitFails(t *testing.T) {
	t.Run("never restarted", func(t *testing.T) {
		inWorld(t, simulated.Config{}, func(w *world) {
			w.run(newPod("p", initContainer("one"), initContainer("two"), restartPolicy(corev1.RestartPolicyNever)))
			w.exit("one", 1)
			w.wantPhase("p", corev1.PodFailed)
			w.wantCondition("p", corev1.PodInitialized, corev1.ConditionFalse, "ContainersNotInitialized")
			w.after(time.Minute)
			if len(w.runtime.configs("two")) != 0 || len(w.runtime.configs("c")) != 0 {
				t.Error("containers started after a failed init container")
			}
			w.wantWaiting("p", "c", "PodInitializing", "")
		})
	})
	t.Run("restarted", func(t *testing.T) {
		inWorld(t, simulated.Config{}, func(w *world) {
			w.run(newPod("p", initContainer("one")))
			w.exit("one", 1)
			w.wantPhase("p", corev1.PodPending)
			if s := w.container("p", "one"); s.RestartCount != 1 || s.State.Running == nil {
				t.Errorf("init container is %+v", s)
			}
			w.exit("one", 1)
			if s := w.container("p", "one"); s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
				t.Errorf("init container is %+v", s)
			}
			w.after(11 * time.Second)
			w.exit("one", 0)
			w.wantPhase("p", corev1.PodRunning)
		})
	})
}

func TestSidecar(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", sidecar("side"), initContainer("one"), restartPolicy(corev1.RestartPolicyNever)))
		if s := w.container("p", "side"); s.State.Running == nil || s.Started == nil || !*s.Started {
			t.Errorf("sidecar is %+v", s)
		}
		w.exit("one", 0)
		w.wantPhase("p", corev1.PodRunning)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		w.exit("side", 1)
		if s := w.container("p", "side"); s.State.Running == nil || s.RestartCount != 1 {
			t.Errorf("sidecar that ended is %+v, want it restarted", s)
		}
		w.exit("c", 0)
		w.wantPhase("p", corev1.PodSucceeded)
		if len(w.running("side")) != 0 {
			t.Error("the sidecar outlives its pod")
		}
	})
}

func TestEphemeralContainer(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p")).DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(image("debug"))}}
		w.api.Put(p)
		w.after(0)
		if s := w.container("p", "debug"); s.State.Running == nil || s.Ready {
			t.Errorf("ephemeral container is %+v", s)
		}
		w.wantEvent("Started", "spec.ephemeralContainers{debug} Started container debug")
		w.exit("debug", 1)
		w.after(time.Minute)
		if s := w.container("p", "debug"); s.State.Terminated == nil || s.RestartCount != 0 {
			t.Errorf("ephemeral container that ended is %+v", s)
		}
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
	})
}

func TestNewImage(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p")).DeepCopy()
		p.Spec.Containers[0].Image = "registry.k8s.io/pause:3.11"
		w.api.Put(p)
		w.after(time.Second)
		s := w.container("p", "c")
		if s.State.Running == nil || s.RestartCount != 1 || s.Image != "registry.k8s.io/pause:3.11" {
			t.Errorf("container is %+v", s)
		}
		w.wantEvent("Killing", "spec.containers{c} Container c definition changed, will be restarted")
	})
}

func TestSandboxLost(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p"))
		boxes, err := w.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(boxes) != 1 {
			t.Fatalf("sandboxes are %v, %v", boxes, err)
		}
		if err := w.runtime.StopPodSandbox(t.Context(), boxes[0].Id); err != nil {
			t.Fatal(err)
		}
		w.after(15 * time.Second)
		if s := w.container("p", "c"); s.State.Running == nil || s.RestartCount != 1 {
			t.Errorf("container is %+v", s)
		}
		if ip := w.pod("p").Status.PodIP; ip != "10.1.0.3" {
			t.Errorf("address is %s, want the new sandbox's", ip)
		}
		w.wantEvent("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	})
}

// TestTracesLost checks that restarts are counted on when the runtime has forgotten the pod, as after a stop of the node.
func TestTracesLost(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p"))
		w.exit("c", 1)
		w.after(time.Minute)
		w.stop()
		boxes, err := w.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(boxes) != 1 {
			t.Fatalf("sandboxes are %v, %v", boxes, err)
		}
		if err := errors.Join(w.runtime.StopPodSandbox(t.Context(), boxes[0].Id), w.runtime.RemovePodSandbox(t.Context(), boxes[0].Id)); err != nil {
			t.Fatal(err)
		}
		w.start(nil)
		w.after(time.Minute)
		s := w.container("p", "c")
		if s.State.Running == nil || s.RestartCount != 2 {
			t.Errorf("container is %+v, want the second restart", s)
		}
		if last := s.LastTerminationState.Terminated; last == nil || last.Reason != "ContainerStatusUnknown" {
			t.Errorf("the run before ended as %+v", last)
		}
	})
}

func TestSandboxFails(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	config := simulated.Config{Fault: func(call, subject string) error {
		if call == "RunPodSandbox" && fails.Load() {
			return errUnknown("plugin is not there")
		}
		return nil
	}}
	inWorld(t, config, func(w *world) {
		w.run(newPod("p"))
		w.wantPhase("p", corev1.PodPending)
		w.wantWaiting("p", "c", "ContainerCreating", "")
		w.wantCondition("p", corev1.PodReadyToStartContainers, corev1.ConditionFalse, "")
		w.wantEvent("FailedCreatePodSandBox", "Failed to create pod sandbox: rpc error: code = Unknown desc = plugin is not there")
		fails.Store(false)
		w.after(time.Minute)
		w.wantPhase("p", corev1.PodRunning)
	})
}

func TestDeadline(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(30)) }))
		w.after(20 * time.Second)
		w.wantPhase("p", corev1.PodRunning)
		w.after(12 * time.Second)
		p := w.pod("p")
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" || p.Status.Message != "Pod was active on the node longer than the specified deadline" {
			t.Errorf("status is %s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		if len(w.running("c")) != 0 {
			t.Error("the container still runs")
		}
	})
}

// TestReadinessGate checks that a pod is ready only with the conditions others set.
func TestReadinessGate(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p", func(p *corev1.Pod) {
			p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		})).DeepCopy()
		w.wantCondition("p", corev1.ContainersReady, corev1.ConditionTrue, "")
		w.wantCondition("p", corev1.PodReady, corev1.ConditionFalse, "ReadinessGatesNotReady")
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
		w.api.Put(p)
		w.after(0)
		w.wantCondition("p", corev1.PodReady, corev1.ConditionTrue, "")
		w.wantCondition("p", "example.com/gate", corev1.ConditionTrue, "")
	})
}

// TestAdoption checks that a new agent goes on where the last one ended.
func TestAdoption(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p"))
		w.run(newPod("q", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "d" }))
		w.run(newPod("r", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "e" }))
		w.exit("c", 1)
		before := w.pod("p")
		w.stop()
		w.api.Remove(w.pod("q"))
		for _, c := range w.running("e") {
			if err := w.runtime.Exit(c.Id, 0); err != nil {
				t.Fatal(err)
			}
		}
		w.api.Calls()
		w.start(nil)
		w.after(time.Second)
		if diff := cmp.Diff(before.Status, w.pod("p").Status); diff != "" {
			t.Errorf("status after the restart (-before +after):\n%s", diff)
		}
		if have := len(w.runtime.configs("c")); have != 2 {
			t.Errorf("%d containers were made, want the 2 of before the restart", have)
		}
		if len(w.running("d")) != 0 {
			t.Error("a pod that was deleted while the agent was away still runs")
		}
		if s := w.container("r", "e"); s.RestartCount != 1 || s.State.Running == nil {
			t.Errorf("container that ended while the agent was away is %+v", s)
		}
		for _, c := range w.api.Calls() {
			if c.Resource.Kind == "Pod" && c.Name == "p" {
				t.Errorf("the restart wrote pod p: %+v", c)
			}
		}
	})
}

// TestStatusRetried checks that a status that could not be written is written later.
func TestStatusRetried(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.api.FailWith(func(c clientfake.Call) error {
			if c.Subresource == "status" && c.Resource.Kind == "Pod" {
				return errUnknown("no connection")
			}
			return nil
		})
		w.run(newPod("p"))
		w.wantPhase("p", corev1.PodPending)
		w.api.FailWith(nil)
		w.after(time.Minute)
		w.wantPhase("p", corev1.PodRunning)
	})
}
