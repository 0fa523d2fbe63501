package node_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/client/clientfake"
	"proa/node/simulated"
)

func TestDelete(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", annotate(simulated.AnnotationStopAfter, "5s")))
		w.delete("p", 20)
		w.after(time.Second)
		p := w.pod("p")
		if p.Status.Phase != corev1.PodRunning {
			t.Errorf("phase while ending is %s", p.Status.Phase)
		}
		w.wantEvent("Killing", "spec.containers{c} Stopping container c")
		w.after(6 * time.Second)
		if !w.gone("p") {
			t.Fatalf("the pod is still there: %+v", w.pod("p").Status)
		}
		w.after(time.Second)
		if boxes, _ := w.runtime.ListPodSandbox(t.Context(), nil); len(boxes) != 0 {
			t.Errorf("%d sandboxes are left", len(boxes))
		}
		if list, _ := w.runtime.ListContainers(t.Context(), nil); len(list) != 0 {
			t.Errorf("%d containers are left", len(list))
		}
		if stops := w.runtime.stopped(); len(stops) != 1 || stops[0].grace < 19*time.Second || stops[0].grace > 20*time.Second {
			t.Errorf("containers were stopped as %+v, want once within 20 s", stops)
		}
	})
}

// TestDeleteReports checks that the end of the containers is in the status before the pod goes.
func TestDeleteReports(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		var mu sync.Mutex
		var last *corev1.Pod
		w.run(newPod("p"))
		w.api.FailWith(func(c clientfake.Call) error {
			mu.Lock()
			defer mu.Unlock()
			if c.Verb == "delete" && c.Resource.Kind == "Pod" && last == nil {
				// The first call is the user's own.
				if p, err := w.pods.Get(t.Context(), "default", "p"); err == nil && p.DeletionTimestamp != nil {
					last = p
				}
			}
			return nil
		})
		w.delete("p", 30)
		w.after(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if last == nil {
			t.Fatal("the agent did not delete the pod")
		}
		s := last.Status.ContainerStatuses
		if len(s) != 1 || s[0].State.Terminated == nil || last.Status.Phase != corev1.PodSucceeded {
			t.Errorf("last status is %+v", last.Status)
		}
	})
}

func TestDeleteShortened(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", annotate(simulated.AnnotationStopAfter, "1h")))
		w.delete("p", 600)
		w.after(time.Second)
		w.delete("p", 5)
		w.after(8 * time.Second)
		if !w.gone("p") {
			t.Error("a shorter grace period has no effect")
		}
	})
}

func TestDeleteByForce(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", annotate(simulated.AnnotationStopAfter, "1h")))
		w.delete("p", 0)
		w.after(40 * time.Second)
		if list, _ := w.runtime.ListContainers(t.Context(), nil); len(list) != 0 {
			t.Errorf("%d containers outlive their pod", len(list))
		}
	})
}

func TestDeleteBeforeStart(t *testing.T) {
	config := simulated.Config{Fault: func(call, subject string) error {
		if call == "PullImage" {
			return errUnknown("no such host")
		}
		return nil
	}}
	inWorld(t, config, func(w *world) {
		w.run(newPod("p"))
		w.delete("p", 30)
		w.after(2 * time.Second)
		if !w.gone("p") {
			t.Error("a pod that never ran is not deleted")
		}
	})
}

func TestDeleteEnded(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", restartPolicy(corev1.RestartPolicyNever)))
		w.exit("c", 0)
		w.delete("p", 30)
		w.after(2 * time.Second)
		if !w.gone("p") {
			t.Error("a pod that has ended is not deleted")
		}
	})
}

func TestSidecarsStopLast(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", sidecar("s1"), sidecar("s2"), container("d"), annotate(simulated.AnnotationStopAfter, "2s")))
		w.delete("p", 30)
		w.after(10 * time.Second)
		stops := w.runtime.stopped()
		var names []string
		for _, s := range stops {
			names = append(names, s.name)
		}
		if len(names) == 4 {
			slices.Sort(names[:2])
		}
		if !slices.Equal(names, []string{"c", "d", "s2", "s1"}) {
			t.Fatalf("containers were stopped in order %v", names)
		}
		if d := stops[3].at.Sub(stops[2].at); d < 2*time.Second {
			t.Errorf("the sidecars were stopped %v apart, want one after the other", d)
		}
		if !w.gone("p") {
			t.Error("the pod is still there")
		}
	})
}

func TestHooks(t *testing.T) {
	hook := func(command string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	var mu sync.Mutex
	var ran []string
	config := simulated.Config{Exec: func(c *cri.ContainerStatus, command []string) ([]byte, []byte, int32, error) {
		mu.Lock()
		ran = append(ran, command[0])
		mu.Unlock()
		if command[0] == "slow" {
			time.Sleep(3 * time.Second)
		}
		if command[0] == "bad" {
			return nil, []byte("no"), 1, nil
		}
		return nil, nil, 0, nil
	}}
	t.Run("run", func(t *testing.T) {
		inWorld(t, config, func(w *world) {
			w.run(newPod("p", first(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: hook("begin"), PreStop: hook("slow")}
			})))
			w.wantPhase("p", corev1.PodRunning)
			w.delete("p", 10)
			w.after(5 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ran, []string{"begin", "slow"}) {
				t.Errorf("hooks ran as %v", ran)
			}
			stops := w.runtime.stopped()
			if len(stops) != 1 || stops[0].grace > 7*time.Second || stops[0].grace < 6*time.Second {
				t.Errorf("after a hook of 3 s the container was stopped as %+v, want what is left of 10 s", stops)
			}
		})
	})
	t.Run("postStart fails", func(t *testing.T) {
		inWorld(t, config, func(w *world) {
			w.run(newPod("p", restartPolicy(corev1.RestartPolicyNever), first(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PostStart: hook("bad")}
			})))
			w.after(2 * time.Second)
			if len(w.events("FailedPostStartHook")) == 0 {
				t.Error("no event tells of the failed hook")
			}
			if len(w.running("c")) != 0 {
				t.Error("the container goes on")
			}
		})
	})
	t.Run("preStop fails", func(t *testing.T) {
		inWorld(t, config, func(w *world) {
			w.run(newPod("p", first(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: hook("bad")} })))
			w.delete("p", 10)
			w.after(2 * time.Second)
			if len(w.events("FailedPreStopHook")) == 0 {
				t.Error("no event tells of the failed hook")
			}
			if !w.gone("p") {
				t.Error("the pod is still there")
			}
		})
	})
	t.Run("sleep", func(t *testing.T) {
		inWorld(t, config, func(w *world) {
			w.run(newPod("p", first(func(c *corev1.Container) {
				c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
			})))
			w.delete("p", 30)
			w.after(4 * time.Second)
			if len(w.running("c")) != 1 {
				t.Error("the container was stopped before its hook ended")
			}
			w.after(2 * time.Second)
			if !w.gone("p") {
				t.Error("the pod is still there")
			}
		})
	})
}

// TestHookShortened checks that a shorter grace period ends a hook that still runs.
func TestHookShortened(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }, first(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 500}}}
		})))
		w.delete("p", 600)
		w.after(10 * time.Second)
		w.delete("p", 5)
		w.after(10 * time.Second)
		if !w.gone("p") {
			t.Error("the hook was not cut short")
		}
	})
}

// TestDeleteWhileInitializing checks that nothing more is started once a pod is to end.
func TestDeleteWhileInitializing(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", initContainer("one")))
		w.delete("p", 10)
		w.after(time.Second)
		if !w.gone("p") {
			t.Error("the pod is still there")
		}
		if len(w.runtime.configs("c")) != 0 {
			t.Error("a container was made after the deletion")
		}
	})
}
