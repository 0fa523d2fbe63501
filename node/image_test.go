package node_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"proa/node/simulated"
)

func errUnknown(text string) error { return status.Error(codes.Unknown, text) }

func TestPullFails(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	config := simulated.Config{Fault: func(call, subject string) error {
		if call == "PullImage" && fails.Load() {
			return errUnknown("no such host")
		}
		return nil
	}}
	inWorld(t, config, func(w *world) {
		w.run(newPod("p"))
		w.wantPhase("p", corev1.PodPending)
		seen := map[string]bool{}
		for range 60 {
			if waiting := w.container("p", "c").State.Waiting; waiting != nil {
				seen[waiting.Reason] = true
			}
			w.after(500 * time.Millisecond)
		}
		if !seen["ErrImagePull"] || !seen["ImagePullBackOff"] {
			t.Errorf("reasons seen are %v", seen)
		}
		w.wantEvent("Failed", `spec.containers{c} Failed to pull image "registry.k8s.io/pause:3.10": rpc error: code = Unknown desc = no such host`)
		w.wantEvent("Failed", "spec.containers{c} Error: ErrImagePull")
		w.wantEvent("Failed", "spec.containers{c} Error: ImagePullBackOff")
		w.wantEvent("BackOff", `spec.containers{c} Back-off pulling image "registry.k8s.io/pause:3.10"`)
		fails.Store(false)
		w.after(2 * time.Minute)
		w.wantPhase("p", corev1.PodRunning)
		if events := w.events("Pulled"); len(events) != 1 || !strings.HasPrefix(events[0], `spec.containers{c} Successfully pulled image "registry.k8s.io/pause:3.10" in `) || !strings.HasSuffix(events[0], "Image size: 67108864 bytes.") {
			t.Errorf("events are %q", events)
		}
	})
}

func TestImagePolicies(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("never", first(func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullNever })))
		w.wantWaiting("never", "c", "ErrImageNeverPull", `Container image "registry.k8s.io/pause:3.10" is not present with pull policy of Never`)
		w.wantEvent("ErrImageNeverPull", `spec.containers{c} Container image "registry.k8s.io/pause:3.10" is not present with pull policy of Never`)

		w.run(newPod("present"))
		w.run(newPod("again"))
		w.wantEvent("Pulled", `spec.containers{c} Container image "registry.k8s.io/pause:3.10" already present on machine`)

		// What another pod has brought in helps.
		w.after(time.Minute)
		w.wantPhase("never", corev1.PodRunning)
	})
}

func TestInvalidImageName(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) { c.Image = "Not-Valid:UPPER:x" })))
		s := w.container("p", "c")
		if s.State.Waiting == nil || s.State.Waiting.Reason != "InvalidImageName" || !strings.HasPrefix(s.State.Waiting.Message, `Failed to apply default image tag "Not-Valid:UPPER:x": couldn't parse image name`) {
			t.Errorf("container is %+v", s.State)
		}
		w.wantEvent("Failed", "spec.containers{c} Error: InvalidImageName")
	})
}
