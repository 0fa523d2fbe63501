package simulated_test

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	noderuntime "proa/node/runtime"
	"proa/node/simulated"
)

func run(t *testing.T, r *simulated.Runtime, name string, annotations map[string]string) (sandbox, container string) {
	t.Helper()
	config := &v1.PodSandboxConfig{Metadata: &v1.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Annotations: annotations}
	sandbox, err := r.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	container, err = r.CreateContainer(t.Context(), sandbox, &v1.ContainerConfig{Metadata: &v1.ContainerMetadata{Name: "c"}, Image: &v1.ImageSpec{Image: "i"}}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), container); err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

func TestContainerEnds(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		grace       time.Duration
		wait        time.Duration
		stop        bool
		took        time.Duration
		state       v1.ContainerState
		code        int32
		reason      string
	}{
		{name: "runs forever", wait: 1000 * time.Hour, state: v1.ContainerState_CONTAINER_RUNNING},
		{name: "exits", annotations: map[string]string{simulated.AnnotationExitAfter: "5s"}, wait: 6 * time.Second, state: v1.ContainerState_CONTAINER_EXITED, reason: "Completed"},
		{name: "not yet", annotations: map[string]string{simulated.AnnotationExitAfter: "5s"}, wait: 4 * time.Second, state: v1.ContainerState_CONTAINER_RUNNING},
		{name: "fails at once", annotations: map[string]string{simulated.AnnotationExitAfter: "0s", simulated.AnnotationExitCode: "3"}, wait: time.Second, state: v1.ContainerState_CONTAINER_EXITED, code: 3, reason: "Error"},
		{name: "for another container", annotations: map[string]string{simulated.AnnotationExitAfter + "/other": "1s"}, wait: 6 * time.Second, state: v1.ContainerState_CONTAINER_RUNNING},
		{name: "for this container", annotations: map[string]string{simulated.AnnotationExitAfter + "/c": "1s"}, wait: 6 * time.Second, state: v1.ContainerState_CONTAINER_EXITED, reason: "Completed"},
		{name: "stops at once", stop: true, grace: 30 * time.Second, state: v1.ContainerState_CONTAINER_EXITED, reason: "Completed"},
		{name: "stops slowly", annotations: map[string]string{simulated.AnnotationStopAfter: "10s"}, stop: true, grace: 30 * time.Second, took: 10 * time.Second, state: v1.ContainerState_CONTAINER_EXITED, reason: "Completed"},
		{name: "is killed", annotations: map[string]string{simulated.AnnotationStopAfter: "1h"}, stop: true, grace: 30 * time.Second, took: 30 * time.Second, state: v1.ContainerState_CONTAINER_EXITED, code: 137, reason: "Error"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := simulated.New(simulated.Config{})
				_, id := run(t, r, "p", test.annotations)
				time.Sleep(test.wait)
				if test.stop {
					started := time.Now()
					if err := r.StopContainer(t.Context(), id, test.grace); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(started); took != test.took {
						t.Errorf("stop took %v, want %v", took, test.took)
					}
				}
				synctest.Wait()
				got, err := r.ContainerStatus(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if got.State != test.state || got.ExitCode != test.code || got.Reason != test.reason {
					t.Errorf("got %v code %d reason %q, want %v code %d reason %q", got.State, got.ExitCode, got.Reason, test.state, test.code, test.reason)
				}
			})
		})
	}
}

func TestAddresses(t *testing.T) {
	r := simulated.New(simulated.Config{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/29"), netip.MustParsePrefix("fd00::/64")}})
	var sandboxes, addresses []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		sandbox, _ := run(t, r, name, nil)
		got, err := r.PodSandboxStatus(t.Context(), sandbox)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Network.AdditionalIps) != 1 {
			t.Errorf("sandbox %s has additional addresses %v, want one", name, got.Network.AdditionalIps)
		}
		sandboxes, addresses = append(sandboxes, sandbox), append(addresses, got.Network.Ip)
	}
	if want := []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"}; !slices.Equal(addresses, want) {
		t.Fatalf("addresses %v, want %v", addresses, want)
	}
	if err := r.RemovePodSandbox(t.Context(), sandboxes[2]); err != nil {
		t.Fatal(err)
	}
	sandbox, _ := run(t, r, "f", nil)
	got, err := r.PodSandboxStatus(t.Context(), sandbox)
	if err != nil || got.Network.Ip != "10.1.0.4" {
		t.Errorf("address after one was given back: %v, %v; want 10.1.0.4 again", got, err)
	}
	_, err = r.RunPodSandbox(t.Context(), &v1.PodSandboxConfig{Metadata: &v1.PodSandboxMetadata{Name: "h"}}, "")
	if err == nil {
		t.Error("a full range gave one more address")
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := simulated.New(simulated.Config{})
		var got []noderuntime.Event
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Events(ctx, func(event noderuntime.Event) { got = append(got, event) }) }()
		synctest.Wait()
		sandbox, container := run(t, r, "p", nil)
		synctest.Wait()
		got = nil
		if err := r.OOMKill(container); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if want := []noderuntime.Event{{Sandbox: sandbox, Container: container}}; !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if got, _ := r.ContainerStatus(t.Context(), container); got.GetReason() != "OOMKilled" || got.GetExitCode() != 137 {
			t.Errorf("killed container is %v", got)
		}
		if err := r.RemovePodSandbox(t.Context(), sandbox); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ContainerStatus(t.Context(), container); status.Code(err) != codes.NotFound {
			t.Errorf("container of a removed sandbox: %v, want NotFound", err)
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("events ended with %v", err)
		}
	})
}

// BenchmarkMemory reports what a running container with its sandbox costs.
func BenchmarkMemory(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := simulated.New(simulated.Config{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	n := 0
	for b.Loop() {
		n++
		// Sizes must not depend on a scan over all sandboxes for equal names: names are the pod's own.
		id, err := r.RunPodSandbox(b.Context(), &v1.PodSandboxConfig{Metadata: &v1.PodSandboxMetadata{Name: "p", Uid: time.Duration(n).String()}}, "")
		if err != nil {
			b.Fatal(err)
		}
		container, err := r.CreateContainer(b.Context(), id, &v1.ContainerConfig{Metadata: &v1.ContainerMetadata{Name: "c"}, Image: &v1.ImageSpec{Image: "i"}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.StartContainer(b.Context(), container); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n), "heap-B/container")
	runtime.KeepAlive(r)
}
