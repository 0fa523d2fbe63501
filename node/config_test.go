package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/simulated"
)

// made is the newest container of a name as the runtime was asked for it.
func (w *world) made(name string) *cri.ContainerConfig {
	w.t.Helper()
	list := w.runtime.configs(name)
	if len(list) == 0 {
		w.t.Fatalf("container %s was not made", name)
	}
	return list[len(list)-1]
}

func (w *world) box(pod string) *cri.PodSandboxConfig {
	w.t.Helper()
	w.runtime.mu.Lock()
	defer w.runtime.mu.Unlock()
	list := w.runtime.boxes[pod]
	if len(list) == 0 {
		w.t.Fatalf("no sandbox of pod %s was made", pod)
	}
	return list[len(list)-1]
}

func environment(c *cri.ContainerConfig) map[string]string {
	out := map[string]string{}
	for _, e := range c.Envs {
		out[e.Key] = string(e.Value)
	}
	return out
}

func TestEnvironment(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"KEY": "value", "bad key": "x"}})
		w.api.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"TOKEN": []byte("secret")}})
		p := w.run(newPod("p", first(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{
				{Prefix: "M_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: new(true)}},
			}
			field := func(path string) *corev1.EnvVarSource {
				return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
			}
			c.Env = []corev1.EnvVar{
				{Name: "PLAIN", Value: "a $(M_KEY) $(NONE) $$(M_KEY)"},
				{Name: "NAME", ValueFrom: field("metadata.name")},
				{Name: "UID", ValueFrom: field("metadata.uid")},
				{Name: "POD_IP", ValueFrom: field("status.podIP")},
				{Name: "HOST_IP", ValueFrom: field("status.hostIP")},
				{Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
				{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
				{Name: "FROM", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "TOKEN"}}},
			}
			c.Command = []string{"echo", "$(NAME)"}
			c.Args = []string{"$(M_KEY)", "$(UNKNOWN)"}
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		})))
		c := w.made("c")
		env := environment(c)
		want := map[string]string{
			"M_KEY": "value", "TOKEN": "secret", "PLAIN": "a value $(NONE) $(M_KEY)", "NAME": "p", "UID": string(p.UID), "POD_IP": p.Status.PodIP,
			"HOST_IP": "192.0.2.1", "NODE": nodeName, "CPU": "4", "MEMORY": "64", "FROM": "secret",
		}
		for k, v := range want {
			if env[k] != v {
				t.Errorf("%s is %q, want %q", k, env[k], v)
			}
		}
		if diff := cmp.Diff([]string{"echo", "p"}, c.Command); diff != "" {
			t.Errorf("command (-want +have):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"value", "$(UNKNOWN)"}, c.Args); diff != "" {
			t.Errorf("arguments (-want +have):\n%s", diff)
		}
		w.wantEvent("InvalidEnvironmentVariableNames", "Keys [M_bad key] from the EnvFrom configMap default/m were skipped since they are considered invalid environment variable names.")
	})
}

// TestConfigMissing checks that a container waits for what its environment comes from.
func TestConfigMissing(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Key: "k"}}}}
		})))
		w.wantWaiting("p", "c", "CreateContainerConfigError", `configmap "m" not found`)
		w.wantEvent("Failed", `spec.containers{c} Error: configmap "m" not found`)
		w.wantPhase("p", corev1.PodPending)
		w.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"other": "x"}})
		w.after(2 * time.Minute)
		w.wantWaiting("p", "c", "CreateContainerConfigError", "couldn't find key k in ConfigMap default/m")
		w.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"k": "v"}})
		w.after(2 * time.Minute)
		w.wantPhase("p", corev1.PodRunning)
		if have := environment(w.made("c"))["A"]; have != "v" {
			t.Errorf("A is %q, want v", have)
		}
	})
}

func TestStartFails(t *testing.T) {
	for _, test := range []struct{ call, reason string }{
		{"CreateContainer", "CreateContainerError"},
		{"StartContainer", "RunContainerError"},
	} {
		t.Run(test.call, func(t *testing.T) {
			config := simulated.Config{Fault: func(call, subject string) error {
				if call == test.call {
					return errUnknown("no such file")
				}
				return nil
			}}
			inWorld(t, config, func(w *world) {
				w.run(newPod("p"))
				w.wantWaiting("p", "c", test.reason, "no such file")
				w.wantEvent("Failed", "spec.containers{c} Error: no such file")
			})
		})
	}
}

func TestSecurity(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p",
			func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{
					RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000)), FSGroup: new(int64(3000)), SupplementalGroups: []int64{4000},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				}
			},
			first(func(c *corev1.Container) {
				c.SecurityContext = &corev1.SecurityContext{
					RunAsUser: new(int64(1001)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
					Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
				}
				c.Resources = corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				}
			}),
			container("privileged"), func(p *corev1.Pod) {
				p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
			}))
		sc := w.made("c").GetLinux().GetSecurityContext()
		if sc.GetRunAsUser().GetValue() != 1001 || sc.GetRunAsGroup().GetValue() != 2000 || !sc.ReadonlyRootfs || !sc.NoNewPrivs || sc.Privileged {
			t.Errorf("security context is %+v", sc)
		}
		if diff := cmp.Diff([]int64{3000, 4000}, slices.Sorted(slices.Values(sc.SupplementalGroups))); diff != "" {
			t.Errorf("groups (-want +have):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"NET_ADMIN"}, sc.GetCapabilities().GetAddCapabilities()); diff != "" {
			t.Errorf("capabilities (-want +have):\n%s", diff)
		}
		if sc.GetSeccomp().GetProfileType() != cri.SecurityProfile_RuntimeDefault {
			t.Errorf("seccomp is %v", sc.GetSeccomp())
		}
		if len(sc.MaskedPaths) == 0 || len(sc.ReadonlyPaths) == 0 {
			t.Error("no paths of /proc are masked")
		}
		r := w.made("c").GetLinux().GetResources()
		if r.GetCpuShares() != 256 || r.GetCpuQuota() != 50000 || r.GetCpuPeriod() != 100000 || r.GetMemoryLimitInBytes() != 128<<20 {
			t.Errorf("resources are %+v", r)
		}
		privileged := w.made("privileged").GetLinux().GetSecurityContext()
		if !privileged.GetPrivileged() || len(privileged.MaskedPaths) != 0 || privileged.GetNoNewPrivs() {
			t.Errorf("security context of a privileged container is %+v", privileged)
		}
	})
}

func TestRunAsNonRoot(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		w.run(newPod("p", first(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}
		})))
		p := w.pod("p")
		w.wantWaiting("p", "c", "CreateContainerConfigError", `container's runAsUser breaks non-root policy (pod: "p_default(`+string(p.UID)+`)", container: c)`)
		w.run(newPod("q", first(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true)}
		})))
		q := w.pod("q")
		w.wantWaiting("q", "c", "CreateContainerConfigError", `container has runAsNonRoot and image will run as root (pod: "q_default(`+string(q.UID)+`)", container: c)`)
	})
}

func TestSandbox(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		p := w.run(newPod("p", func(p *corev1.Pod) {
			p.Labels = map[string]string{"app": "web"}
			p.Annotations = map[string]string{"a": "b"}
			p.Spec.Hostname, p.Spec.Subdomain = "web-0", "web"
			p.Spec.ShareProcessNamespace = new(true)
			p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}}}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}}
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
		}))
		box := w.box("p")
		if box.Hostname != "web-0" || box.Metadata.Uid != string(p.UID) || box.Metadata.Namespace != "default" {
			t.Errorf("sandbox is %+v", box)
		}
		for k, v := range map[string]string{"app": "web", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": string(p.UID)} {
			if box.Labels[k] != v {
				t.Errorf("label %s is %q, want %q", k, box.Labels[k], v)
			}
		}
		if box.Annotations["a"] != "b" {
			t.Errorf("annotations are %v", box.Annotations)
		}
		dns := box.DnsConfig
		if diff := cmp.Diff([]string{"10.96.0.10", "192.0.2.53"}, dns.GetServers()); diff != "" {
			t.Errorf("name servers (-want +have):\n%s", diff)
		}
		if s := dns.GetSearches(); len(s) < 4 || s[0] != "default.svc.cluster.local" || s[1] != "svc.cluster.local" || s[2] != "cluster.local" || s[len(s)-1] != "example.com" {
			t.Errorf("searches are %q", s)
		}
		if diff := cmp.Diff([]string{"ndots:2"}, dns.GetOptions()); diff != "" {
			t.Errorf("options (-want +have):\n%s", diff)
		}
		ns := box.GetLinux().GetSecurityContext().GetNamespaceOptions()
		if ns.GetPid() != cri.NamespaceMode_POD || ns.GetNetwork() != cri.NamespaceMode_POD || ns.GetIpc() != cri.NamespaceMode_POD {
			t.Errorf("namespaces are %v", ns)
		}
		if box.GetLinux().GetSysctls()["net.ipv4.ip_unprivileged_port_start"] != "0" {
			t.Errorf("sysctls are %v", box.GetLinux().GetSysctls())
		}
		if len(box.PortMappings) != 1 || box.PortMappings[0].HostPort != 8080 || box.PortMappings[0].ContainerPort != 80 {
			t.Errorf("port mappings are %v", box.PortMappings)
		}

		h := w.run(newPod("h", func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true }))
		if h.Status.PodIP != "192.0.2.1" {
			t.Errorf("address of a pod on the host's network is %q", h.Status.PodIP)
		}
		ns = w.box("h").GetLinux().GetSecurityContext().GetNamespaceOptions()
		if ns.GetPid() != cri.NamespaceMode_NODE || ns.GetNetwork() != cri.NamespaceMode_NODE || ns.GetIpc() != cri.NamespaceMode_NODE {
			t.Errorf("namespaces of a pod that shares the host's are %v", ns)
		}
	})
}

func TestOOMScores(t *testing.T) {
	inWorld(t, simulated.Config{}, func(w *world) {
		limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("4Gi")}
		w.run(newPod("guaranteed", func(p *corev1.Pod) {
			p.Spec.Containers[0].Name = "g"
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: limits, Limits: limits}
		}))
		w.run(newPod("burstable", func(p *corev1.Pod) {
			p.Spec.Containers[0].Name = "b"
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
		}))
		w.run(newPod("besteffort"))
		for name, want := range map[string]int64{"g": -997, "b": 750, "c": 1000} {
			if have := w.made(name).GetLinux().GetResources().GetOomScoreAdj(); have != want {
				t.Errorf("out-of-memory score of %s is %d, want %d", name, have, want)
			}
		}
	})
}
