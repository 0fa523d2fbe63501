package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node"
	"proa/node/simulated"
)

// inWorldOnDisk is inWorld with an agent that keeps files below the folder it returns to the test.
func inWorldOnDisk(t *testing.T, test func(w *world, dir string)) {
	t.Helper()
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.99\nsearch example.org\noptions ndots:3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	inWorldWith(t, simulated.Config{}, func(c *node.Config) { c.RootDir, c.HostResolvConf = filepath.Join(dir, "root"), resolv }, func(w *world) { test(w, dir) })
}

// host is where on the node a path of a container lies.
func host(t *testing.T, c *cri.ContainerConfig, path string) string {
	t.Helper()
	for _, m := range c.Mounts {
		if m.ContainerPath == path {
			return m.HostPath
		}
	}
	t.Fatalf("container %s has nothing mounted at %s: %v", c.Metadata.Name, path, c.Mounts)
	return ""
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestHosts(t *testing.T) {
	inWorldOnDisk(t, func(w *world, dir string) {
		w.run(newPod("p", func(p *corev1.Pod) {
			p.Spec.Hostname, p.Spec.Subdomain = "web-0", "web"
			p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"a.example.com", "b.example.com"}}}
		}))
		want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.1.0.2\tweb-0.web.default.svc.cluster.local\tweb-0\n" +
			"\n# Entries added by HostAliases.\n192.0.2.7\ta.example.com\tb.example.com\n"
		if diff := cmp.Diff(want, read(t, host(t, w.made("c"), "/etc/hosts"))); diff != "" {
			t.Errorf("hosts (-want +have):\n%s", diff)
		}
		w.run(newPod("h", func(p *corev1.Pod) { p.Spec.HostNetwork = true; p.Spec.Containers[0].Name = "h" }))
		if have := read(t, host(t, w.made("h"), "/etc/hosts")); !strings.HasPrefix(have, "# Kubernetes-managed hosts file (host network).\n") {
			t.Errorf("hosts on the node's network are %q", have)
		}
		// A pod may bring its own.
		w.run(newPod("own", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].Name = "own"
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/etc/hosts"}}
		}))
		if have := host(t, w.made("own"), "/etc/hosts"); !strings.Contains(have, "kubernetes.io~empty-dir/v") {
			t.Errorf("the pod's own hosts file is %s", have)
		}
	})
}

func TestResolvConf(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   *cri.DNSConfig
	}{
		{"cluster first", func(s *corev1.PodSpec) {}, &cri.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"}, Options: []string{"ndots:5"},
		}},
		{"default", func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }, &cri.DNSConfig{
			Servers: []string{"192.0.2.99"}, Searches: []string{"example.org"}, Options: []string{"ndots:3"},
		}},
		{"cluster first on the node's network", func(s *corev1.PodSpec) { s.HostNetwork = true }, &cri.DNSConfig{
			Servers: []string{"192.0.2.99"}, Searches: []string{"example.org"}, Options: []string{"ndots:3"},
		}},
		{"cluster first with the node's network", func(s *corev1.PodSpec) {
			s.HostNetwork, s.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
		}, &cri.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org"}, Options: []string{"ndots:5"},
		}},
		{"none", func(s *corev1.PodSpec) {
			s.DNSPolicy = corev1.DNSNone
			s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"x.example"}, Options: []corev1.PodDNSConfigOption{{Name: "edns0"}, {Name: "ndots", Value: new("1")}}}
		}, &cri.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"x.example"}, Options: []string{"edns0", "ndots:1"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorldOnDisk(t, func(w *world, dir string) {
				w.run(newPod("p", func(p *corev1.Pod) { test.change(&p.Spec) }))
				have := w.box("p").DnsConfig
				if diff := cmp.Diff([][]string{test.want.Servers, test.want.Searches, test.want.Options}, [][]string{have.Servers, have.Searches, have.Options}); diff != "" {
					t.Errorf("resolv.conf (-want +have):\n%s", diff)
				}
			})
		})
	}
}

func TestTerminationMessage(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy corev1.TerminationMessagePolicy
		file   string
		code   int32
		want   string
	}{
		{"file", corev1.TerminationMessageReadFile, "the end", 0, "the end"},
		{"file first", corev1.TerminationMessageFallbackToLogsOnError, "the end", 1, "the end"},
		{"log", corev1.TerminationMessageFallbackToLogsOnError, "", 1, "first\nsecond\n"},
		{"no error, no log", corev1.TerminationMessageFallbackToLogsOnError, "", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			inWorldOnDisk(t, func(w *world, dir string) {
				p := w.run(newPod("p", restartPolicy(corev1.RestartPolicyNever), first(func(c *corev1.Container) { c.TerminationMessagePolicy = test.policy })))
				if err := os.WriteFile(host(t, w.made("c"), "/dev/termination-log"), []byte(test.file), 0o644); err != nil {
					t.Fatal(err)
				}
				log := filepath.Join(dir, "root", "logs", "default_p_"+string(p.UID), "c", "0.log")
				if err := os.WriteFile(log, []byte("2000-01-01T00:00:00Z stdout F first\n2000-01-01T00:00:00Z stderr P sec\n2000-01-01T00:00:00Z stderr F ond\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				w.exit("c", test.code)
				if have := w.container("p", "c").State.Terminated; have == nil || have.Message != test.want {
					t.Errorf("state is %+v, want message %q", have, test.want)
				}
			})
		})
	}
}

func TestServiceVariables(t *testing.T) {
	inWorldOnDisk(t, func(w *world, dir string) {
		service := func(namespace, name, ip string) *corev1.Service {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{
				ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
			}}
		}
		w.api.Put(service("default", "kubernetes", "10.96.0.1"))
		w.api.Put(service("default", "my-web", "10.96.0.2"))
		w.api.Put(service("default", "headless", corev1.ClusterIPNone))
		w.api.Put(service("other", "theirs", "10.96.0.3"))
		w.run(newPod("p"))
		env := environment(w.made("c"))
		for k, v := range map[string]string{
			"KUBERNETES_SERVICE_HOST": "10.96.0.1", "MY_WEB_SERVICE_HOST": "10.96.0.2", "MY_WEB_SERVICE_PORT": "80", "MY_WEB_SERVICE_PORT_HTTP": "80",
			"MY_WEB_PORT": "tcp://10.96.0.2:80", "MY_WEB_PORT_80_TCP": "tcp://10.96.0.2:80", "MY_WEB_PORT_80_TCP_PROTO": "tcp",
			"MY_WEB_PORT_80_TCP_PORT": "80", "MY_WEB_PORT_80_TCP_ADDR": "10.96.0.2",
		} {
			if env[k] != v {
				t.Errorf("%s is %q, want %q", k, env[k], v)
			}
		}
		for k := range env {
			if strings.HasPrefix(k, "HEADLESS") || strings.HasPrefix(k, "THEIRS") {
				t.Errorf("%s is set", k)
			}
		}
		w.run(newPod("q", func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(false); p.Spec.Containers[0].Name = "q" }))
		env = environment(w.made("q"))
		if env["KUBERNETES_SERVICE_HOST"] == "" || env["MY_WEB_SERVICE_HOST"] != "" {
			t.Errorf("without links the environment is %v", env)
		}
	})
}

// TestVolumes checks what the agent adds to package volumes: waiting, mounts, updates and cleaning up.
func TestVolumes(t *testing.T) {
	inWorldOnDisk(t, func(w *world, dir string) {
		p := w.run(newPod("p", func(p *corev1.Pod) {
			p.Labels = map[string]string{"colour": "red"}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "map", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}}},
				{Name: "me", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels"}},
				}}}},
			}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "map", MountPath: "/map", ReadOnly: true}, {Name: "me", MountPath: "/me"}}
		}))
		w.wantPhase("p", corev1.PodPending)
		w.wantWaiting("p", "c", "ContainerCreating", "")
		w.wantEvent("FailedMount", `MountVolume.SetUp failed for volume "map" : configmap "m" not found`)

		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "default"}, Data: map[string]string{"k": "one"}}
		w.api.Put(configMap)
		w.after(3 * time.Second)
		w.wantPhase("p", corev1.PodRunning)
		c := w.made("c")
		if have := read(t, filepath.Join(host(t, c, "/map"), "k")); have != "one" {
			t.Errorf("content is %q", have)
		}
		if have := read(t, filepath.Join(host(t, c, "/me"), "labels")); have != `colour="red"` {
			t.Errorf("labels are %q", have)
		}
		for _, m := range c.Mounts {
			if m.ContainerPath == "/map" && !m.Readonly {
				t.Error("a mount asked for as read-only is not")
			}
		}

		configMap = configMap.DeepCopy()
		configMap.Data["k"] = "two"
		w.api.Put(configMap)
		changed := w.pod("p").DeepCopy()
		changed.Labels["colour"] = "blue"
		w.api.Put(changed)
		w.after(time.Second)
		if have := read(t, filepath.Join(host(t, c, "/map"), "k")); have != "two" {
			t.Errorf("content after the change is %q", have)
		}
		if have := read(t, filepath.Join(host(t, c, "/me"), "labels")); have != `colour="blue"` {
			t.Errorf("labels after the change are %q", have)
		}
		if have := w.container("p", "c").RestartCount; have != 0 {
			t.Errorf("restarts: %d, want none", have)
		}

		w.delete("p", 5)
		w.after(2 * time.Second)
		if !w.gone("p") {
			t.Fatal("the pod is still there")
		}
		for _, path := range []string{filepath.Join(dir, "root", "pods", string(p.UID)), filepath.Join(dir, "root", "logs", "default_p_"+string(p.UID))} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", path, err)
			}
		}
	})
}

// TestSubPathExpr checks the texts by which users find out what is wrong with a path.
func TestSubPathExpr(t *testing.T) {
	inWorldOnDisk(t, func(w *world, dir string) {
		w.run(newPod("p", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"path": "/absolute"}
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			c := &p.Spec.Containers[0]
			c.Env = []corev1.EnvVar{{Name: "P", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['path']"}}}}
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: "$(P)"}}
		}))
		w.wantWaiting("p", "c", "CreateContainerConfigError", "error SubPath `/absolute` must not be an absolute path")
		w.wantEvent("Failed", "spec.containers{c} Error: error SubPath `/absolute` must not be an absolute path")
	})
}
