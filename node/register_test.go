package node_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa/client"
	"proa/node"
	"proa/node/simulated"
)

func (w *world) node() *corev1.Node {
	w.t.Helper()
	n, err := client.For[*corev1.Node](w.api).Get(w.t.Context(), "", nodeName)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestRegistration(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.after(2 * time.Second)
		n := w.node()
		for _, k := range []string{"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"} {
			if n.Labels[k] == "" {
				t.Errorf("label %s is missing in %v", k, n.Labels)
			}
		}
		if len(n.Status.Addresses) != 2 || n.Status.Addresses[0].Type != corev1.NodeInternalIP || n.Status.Addresses[0].Address != "192.0.2.1" ||
			n.Status.Addresses[1].Type != corev1.NodeHostName || n.Status.Addresses[1].Address != nodeName {
			t.Errorf("addresses are %v", n.Status.Addresses)
		}
		if n.Status.Capacity.Cpu().Cmp(resource.MustParse("4")) != 0 || n.Status.Capacity.Pods().Value() != 110 || n.Status.Allocatable.Memory().IsZero() {
			t.Errorf("capacity is %v, allocatable %v", n.Status.Capacity, n.Status.Allocatable)
		}
		info := n.Status.NodeInfo
		if info.KubeletVersion != node.Version || info.ContainerRuntimeVersion != "simulated://1.0.0" || info.OperatingSystem != "linux" || info.Architecture == "" || info.KernelVersion == "" {
			t.Errorf("node info is %+v", info)
		}
		if n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
			t.Errorf("port is %d", n.Status.DaemonEndpoints.KubeletEndpoint.Port)
		}
		want := map[corev1.NodeConditionType]string{
			corev1.NodeMemoryPressure: "False KubeletHasSufficientMemory: kubelet has sufficient memory available",
			corev1.NodeDiskPressure:   "False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			corev1.NodePIDPressure:    "False KubeletHasSufficientPID: kubelet has sufficient PID available",
			corev1.NodeReady:          "True KubeletReady: kubelet is posting ready status",
		}
		for _, c := range n.Status.Conditions {
			if have := string(c.Status) + " " + c.Reason + ": " + c.Message; have != want[c.Type] {
				t.Errorf("condition %s is %q, want %q", c.Type, have, want[c.Type])
			}
			delete(want, c.Type)
		}
		if len(want) != 0 {
			t.Errorf("conditions %v are missing", want)
		}
	})
}

func TestOwnPodCIDRs(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("100.64.7.0/24"), netip.MustParsePrefix("fd00:7::/64")}
	inWorldWith(t, simulated.Config{}, func(c *node.Config) { c.OwnPodCIDRs = own }, func(w *world) {
		if spec := w.node().Spec; spec.PodCIDR != "100.64.7.0/24" || !slices.Equal(spec.PodCIDRs, []string{"100.64.7.0/24", "fd00:7::/64"}) {
			t.Errorf("ranges are %q, %q", spec.PodCIDR, spec.PodCIDRs)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		leases := client.For[*coordinationv1.Lease](w.api)
		lease, err := leases.Get(t.Context(), "kube-node-lease", nodeName)
		if err != nil {
			t.Fatal(err)
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != nodeName || *lease.Spec.LeaseDurationSeconds != 40 {
			t.Errorf("lease is %+v", lease.Spec)
		}
		if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != w.node().UID {
			t.Errorf("owner of the lease is %+v, want the node", lease.OwnerReferences)
		}
		first := lease.Spec.RenewTime.Time
		w.after(time.Minute)
		lease, err = leases.Get(t.Context(), "kube-node-lease", nodeName)
		if err != nil {
			t.Fatal(err)
		}
		if d := lease.Spec.RenewTime.Sub(first); d < 45*time.Second {
			t.Errorf("after a minute the lease was renewed %v after the first time", d)
		}
		before := heartbeat(w.node())
		w.after(6 * time.Minute)
		if d := heartbeat(w.node()).Sub(before); d < 4*time.Minute {
			t.Errorf("after six minutes the status is %v younger", d)
		}
		changed := w.node().Status.Conditions
		for _, c := range changed {
			if c.LastTransitionTime.After(before) {
				t.Errorf("condition %s says that it changed", c.Type)
			}
		}
	})
}

func heartbeat(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// TestRegistrationKept checks that a new agent leaves what others have set on its node.
func TestRegistrationKept(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.after(2 * time.Second)
		w.stop()
		n := w.node().DeepCopy()
		n.Labels["team"] = "a"
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.1.0.0/24", []string{"10.1.0.0/24"}
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Other", Status: corev1.ConditionTrue})
		delete(n.Labels, "kubernetes.io/os")
		w.api.Put(n)
		w.start(func(c *node.Config) {
			c.Labels = map[string]string{"zone": "b"}
			c.Taints = []corev1.Taint{{Key: "fresh", Effect: corev1.TaintEffectNoSchedule}}
		})
		w.after(2 * time.Second)
		after := w.node()
		if after.UID != n.UID || after.Labels["team"] != "a" || after.Labels["kubernetes.io/os"] != "linux" || after.Labels["zone"] != "b" || after.Spec.PodCIDR != "10.1.0.0/24" {
			t.Errorf("node is %+v", after.ObjectMeta)
		}
		if len(after.Spec.Taints) != 1 || after.Spec.Taints[0].Key != "k" {
			t.Errorf("taints are %v, want those of before: taints are for new nodes", after.Spec.Taints)
		}
		found := false
		for _, c := range after.Status.Conditions {
			found = found || c.Type == "Other"
		}
		if !found {
			t.Error("a condition of somebody else is gone")
		}
	})
}

// TestRefused checks what the node itself finds wrong with pods bound to it.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		pod     func(*corev1.Pod)
		reason  string
		message string
	}{
		{"cpu", first(func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
		}), "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"},
		{"memory", first(func(c *corev1.Container) {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ti")}
		}), "OutOfmemory", ""},
		{"selector", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "such"} }, "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		{"sysctl", func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
		}, "SysctlForbidden", `Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{"system", func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, "PodOSNotSupported", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorld(t, simulated.Config{}, func(w *world) {
				w.after(2 * time.Second)
				p := w.run(newPod("p", test.pod))
				if p.Status.Phase != corev1.PodFailed || p.Status.Reason != test.reason || test.message != "" && p.Status.Message != test.message {
					t.Errorf("status is %s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
				}
				if len(w.runtime.configs("c")) != 0 {
					t.Error("a container was made")
				}
			})
		})
	}
}

func TestRefusedPort(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		port := first(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
		})
		w.run(newPod("p", port))
		q := w.run(newPod("q", port))
		w.wantPhase("p", corev1.PodRunning)
		if q.Status.Phase != corev1.PodFailed || q.Status.Reason != "NodePorts" {
			t.Errorf("status is %s, %s: %s", q.Status.Phase, q.Status.Reason, q.Status.Message)
		}
	})
}

// TestPreemption checks that lesser pods make room for a critical one, and no more of them than needed.
func TestPreemption(t *testing.T) {
	cpu := func(name, cpu string, priority int32) *corev1.Pod {
		return newPod(name, func(p *corev1.Pod) {
			p.Spec.Priority = &priority
			p.Spec.Containers[0].Name = name
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		})
	}
	inWorld(t, simulated.Config{}, func(w *world) {
		w.after(2 * time.Second)
		w.run(cpu("big", "2", 10))
		w.run(cpu("small", "1", 5))
		w.run(cpu("other", "1", 20))
		w.run(cpu("hopeless", "5", 2000000000))
		w.wantPhase("hopeless", corev1.PodFailed)
		w.wantPhase("small", corev1.PodRunning)
		w.run(cpu("system", "2", 2000001000))
		w.after(time.Second)
		w.wantPhase("system", corev1.PodRunning)
		w.wantPhase("small", corev1.PodRunning)
		w.wantPhase("other", corev1.PodRunning)
		p := w.pod("big")
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Preempting" || p.Status.Message != "Preempted in order to admit critical pod" {
			t.Errorf("status is %s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		w.wantCondition("big", corev1.DisruptionTarget, corev1.ConditionTrue, "TerminationByKubelet")
		w.wantEvent("Preempting", "Preempted in order to admit critical pod")
	})
}

// TestAdmissionTogether checks that of pods that come at once as many run as fit.
func TestAdmissionTogether(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.after(2 * time.Second)
		for i := range 10 {
			w.create(newPod(fmt.Sprintf("p%d", i), first(func(c *corev1.Container) {
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			})))
		}
		w.after(2 * time.Second)
		phases := map[corev1.PodPhase]int{}
		for i := range 10 {
			phases[w.pod(fmt.Sprintf("p%d", i)).Status.Phase]++
		}
		if phases[corev1.PodRunning] != 4 || phases[corev1.PodFailed] != 6 {
			t.Errorf("of ten pods of one core each on four cores are %v", phases)
		}
	})
}
