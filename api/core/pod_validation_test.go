package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// goodPod is a pod of one container after defaulting, changed by each of the functions.
func goodPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx:1.27"}}},
	}
	for _, c := range change {
		c(pod)
	}
	defaultPod(pod)
	return pod
}

// short lists errors as "Type field", in order.
func short(errs field.ErrorList) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, strings.TrimPrefix(string(e.Type), "FieldValue")+" "+e.Field)
	}
	slices.Sort(out)
	return out
}

func resources(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestValidatePod(t *testing.T) {
	main := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Spec.Containers[0]) }
	}
	spec := func(f func(*corev1.PodSpec)) func(*corev1.Pod) { return func(p *corev1.Pod) { f(&p.Spec) } }
	affinity := func(terms ...corev1.PodAffinityTerm) func(*corev1.Pod) {
		return spec(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
		})
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   []string
	}{
		{"plain", main(func(c *corev1.Container) {}), nil},
		{"no containers", spec(func(s *corev1.PodSpec) { s.Containers = nil }), []string{"Required spec.containers"}},
		{"container name", main(func(c *corev1.Container) { c.Name = "Main_1" }), []string{"Invalid spec.containers[0].name"}},
		{"duplicate name", spec(func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{s.Containers[0]} }),
			[]string{"Duplicate spec.initContainers[0].name"}},
		{"no image", main(func(c *corev1.Container) { c.Image = "" }), []string{"Required spec.containers[0].image"}},
		{"padded image", main(func(c *corev1.Container) { c.Image = " nginx" }), []string{"Invalid spec.containers[0].image"}},
		{"pull policy", main(func(c *corev1.Container) { c.ImagePullPolicy = "Sometimes" }),
			[]string{"NotSupported spec.containers[0].imagePullPolicy"}},
		{"restart policy", spec(func(s *corev1.PodSpec) { s.RestartPolicy = "Never!" }), []string{"NotSupported spec.restartPolicy"}},
		{"ports", main(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{}, {ContainerPort: 70000}, {ContainerPort: 1, Protocol: "QUIC"}}
		}), []string{"Invalid spec.containers[0].ports[1].containerPort", "NotSupported spec.containers[0].ports[2].protocol",
			"Required spec.containers[0].ports[0].containerPort"}},
		{"host ports", main(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 9}, {ContainerPort: 2, HostPort: 9}}
		}), []string{"Duplicate spec.containers[0].ports[1].hostPort"}},
		{"host network port", func(p *corev1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 9}}
		}, []string{"Invalid spec.containers[0].ports[0].containerPort"}},
		{"env", main(func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{}, {Name: "1A"}, {Name: "A", ValueFrom: &corev1.EnvVarSource{}},
				{Name: "B", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.phase"}}},
				{Name: "C", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['a/b/c']"}}},
				{Name: "D", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
				{Name: "E", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.disk"}}},
				{Name: "F", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}}
		}), []string{"Invalid spec.containers[0].env[1].name", "Invalid spec.containers[0].env[2].valueFrom",
			"Invalid spec.containers[0].env[4].valueFrom.fieldRef", "NotSupported spec.containers[0].env[3].valueFrom.fieldRef.fieldPath",
			"NotSupported spec.containers[0].env[6].valueFrom.resourceFieldRef.resource", "Required spec.containers[0].env[0].name",
			"Required spec.containers[0].env[7].valueFrom.configMapKeyRef.key"}},
		{"mounts", main(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/a"}, {Name: "x", MountPath: "/a", SubPath: "../b"}}
		}), []string{"Invalid spec.containers[0].volumeMounts[1].mountPath", "Invalid spec.containers[0].volumeMounts[1].subPath",
			"NotFound spec.containers[0].volumeMounts[0].name", "NotFound spec.containers[0].volumeMounts[1].name"}},
		{"recursive read-only", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "x"}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/a",
				RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)}}
		}, []string{"Forbidden spec.containers[0].volumeMounts[0].recursiveReadOnly"}},
		{"volumes", spec(func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "x"}, {Name: "x"},
				{Name: "y", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}, EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "z", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b"}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "a"}, DefaultMode: new(int32(01000))}}}}
		}), []string{"Duplicate spec.volumes[1].name", "Forbidden spec.volumes[2].secret",
			"Invalid spec.volumes[3].hostPath.path", "Invalid spec.volumes[4].configMap.defaultMode"}},
		{"token projection", spec(func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Path: "t", ExpirationSeconds: new(int64(5))}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}, {}}}}}}
		}), []string{"Invalid spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
			"Invalid spec.volumes[0].projected.sources[1].serviceAccountToken.path", "Required spec.volumes[0].projected.sources[2]"}},
		{"probes", main(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{SuccessThreshold: 2, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(0)}}}
			c.ReadinessProbe = &corev1.Probe{TerminationGracePeriodSeconds: new(int64(3)), PeriodSeconds: -1}
		}), []string{"Invalid spec.containers[0].livenessProbe.successThreshold", "Invalid spec.containers[0].livenessProbe.tcpSocket.port",
			"Invalid spec.containers[0].readinessProbe.periodSeconds", "Invalid spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
			"Required spec.containers[0].readinessProbe"}},
		{"sleep hook", main(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 31}}}
		}), []string{"Invalid spec.containers[0].lifecycle.preStop.sleep"}},
		{"init probe", spec(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", Image: "i", StartupProbe: &corev1.Probe{}}}
		}), []string{"Forbidden spec.initContainers[0].startupProbe"}},
		{"sidecar probe", spec(func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "i", Image: "i", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
				StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}}}
		}), nil},
		{"restart policy of a container", main(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }),
			[]string{"Forbidden spec.containers[0].restartPolicy"}},
		{"request above limit", main(func(c *corev1.Container) {
			c.Resources = corev1.ResourceRequirements{Requests: resources("cpu", "2"), Limits: resources("cpu", "1")}
		}), []string{"Invalid spec.containers[0].resources.requests"}},
		{"unknown resource", main(func(c *corev1.Container) { c.Resources.Limits = resources("disk", "2", "example.com/gpu", "500m") }),
			[]string{"Invalid spec.containers[0].resources.limits[disk]", "Invalid spec.containers[0].resources.limits[example.com/gpu]",
				"Invalid spec.containers[0].resources.requests[disk]", "Invalid spec.containers[0].resources.requests[example.com/gpu]"}},
		{"extended without limit", main(func(c *corev1.Container) { c.Resources.Requests = resources("example.com/gpu", "1") }),
			[]string{"Required spec.containers[0].resources.limits"}},
		{"huge pages alone", main(func(c *corev1.Container) { c.Resources.Limits = resources("hugepages-2Mi", "4Mi") }),
			[]string{"Forbidden spec.containers[0].resources"}},
		{"pod resources", spec(func(s *corev1.PodSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: resources("cpu", "1"), Limits: resources("cpu", "1", "example.com/gpu", "1")}
			s.Containers[0].Resources = corev1.ResourceRequirements{Limits: resources("cpu", "2")}
		}), []string{"Invalid spec.resources.containers[0][cpu].limits", "Invalid spec.resources.requests[cpu]",
			"NotSupported spec.resources.limits[example.com/gpu]", "NotSupported spec.resources.requests[example.com/gpu]"}},
		{"escalation", main(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true), AllowPrivilegeEscalation: new(false), RunAsUser: new(int64(-1))}
		}), []string{"Invalid spec.containers[0].securityContext", "Invalid spec.containers[0].securityContext.runAsUser"}},
		{"profiles", main(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{
				SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost},
				AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined, LocalhostProfile: new("x")},
			}
		}), []string{"Invalid spec.containers[0].securityContext.appArmorProfile.localhostProfile",
			"Required spec.containers[0].securityContext.seccompProfile.localhostProfile"}},
		{"apparmor annotation of nothing", func(p *corev1.Pod) {
			p.Annotations = map[string]string{appArmorPrefix + "other": "runtime/default"}
		}, []string{"Invalid metadata.annotations[" + appArmorPrefix + "other]"}},
		{"apparmor disagreement", func(p *corev1.Pod) {
			p.Annotations = map[string]string{appArmorPrefix + "main": "unconfined"}
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}
		}, []string{"Forbidden spec.containers[0].securityContext.appArmorProfile.type"}},
		{"unmasked proc", main(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}
		}), []string{"Invalid spec.containers[0].securityContext.procMount"}},
		{"user namespace of the host's network", spec(func(s *corev1.PodSpec) { s.HostUsers, s.HostNetwork = new(false), true }),
			[]string{"Forbidden spec.hostNetwork"}},
		{"sysctls", spec(func(s *corev1.PodSpec) {
			s.HostNetwork = true
			s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "net.core.somaxconn"}, {Name: "a..b"}, {}}}
		}), []string{"Invalid spec.securityContext.sysctls[0].name", "Invalid spec.securityContext.sysctls[1].name", "Required spec.securityContext.sysctls[2].name"}},
		{"windows fields", spec(func(s *corev1.PodSpec) {
			s.OS = &corev1.PodOS{Name: corev1.Windows}
			s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1))}
			s.HostPID = true
		}), []string{"Forbidden spec.hostPID", "Forbidden spec.securityContext.fsGroup"}},
		{"tolerations", spec(func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{}, {Key: "a", Operator: "Exists", Value: "b"}, {Key: "a", TolerationSeconds: new(int64(1))}}
		}), []string{"Invalid spec.tolerations[0].operator", "Invalid spec.tolerations[1].operator", "Invalid spec.tolerations[2].effect"}},
		{"spread", spec(func(s *corev1.PodSpec) {
			c := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway,
				MinDomains: new(int32(2)), MatchLabelKeys: []string{"app"}, LabelSelector: selector}
			s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{c, c, {}}
		}), []string{"Duplicate spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}",
			"Invalid spec.topologySpreadConstraints[0].matchLabelKeys[0]", "Invalid spec.topologySpreadConstraints[0].minDomains",
			"Invalid spec.topologySpreadConstraints[1].matchLabelKeys[0]", "Invalid spec.topologySpreadConstraints[1].minDomains",
			"Invalid spec.topologySpreadConstraints[2].maxSkew", "NotSupported spec.topologySpreadConstraints[2].whenUnsatisfiable",
			"Required spec.topologySpreadConstraints[2].topologyKey"}},
		{"label keys without selector", affinity(corev1.PodAffinityTerm{TopologyKey: "zone", MatchLabelKeys: []string{"a"}}),
			[]string{"Forbidden spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys"}},
		{"label key in selector", affinity(corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: selector, MatchLabelKeys: []string{"app"}}),
			[]string{"Invalid spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]"}},
		{"dns", spec(func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSNone }), []string{"Required spec.dnsConfig"}},
		{"gates and node", spec(func(s *corev1.PodSpec) {
			s.NodeName = "n"
			s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "a"}}
		}), []string{"Duplicate spec.schedulingGates[1]", "Forbidden spec.nodeName"}},
		{"ephemeral containers", spec(func(s *corev1.PodSpec) {
			s.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "d", Image: "d", Ports: []corev1.ContainerPort{{ContainerPort: 1}}}, TargetContainerName: "x"}}
		}), []string{"Forbidden spec.ephemeralContainers", "Forbidden spec.ephemeralContainers[0].ports", "NotFound spec.ephemeralContainers[0].targetContainerName"}},
		{"deadline", spec(func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(0)) }), []string{"Invalid spec.activeDeadlineSeconds"}},
		{"deletion cost", func(p *corev1.Pod) { p.Annotations = map[string]string{podDeletionCost: "+1"} },
			[]string{"Invalid metadata.annotations[" + podDeletionCost + "]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == nil {
				tc.want = []string{}
			}
			if diff := cmp.Diff(tc.want, short(validatePod(goodPod(tc.change)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidatePodUpdate(t *testing.T) {
	gated := func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}} }
	for _, tc := range []struct {
		name   string
		old    func(*corev1.Pod)
		change func(*corev1.Pod)
		want   []string
	}{
		{"image", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }, nil},
		{"command", nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, []string{"Forbidden spec"}},
		{"container added", nil, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, *p.Spec.Containers[0].DeepCopy())
			p.Spec.Containers[1].Name = "b"
		}, []string{"Forbidden spec.containers"}},
		{"deadline set", nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3)) }, nil},
		{"deadline raised", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3)) },
			func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(4)) }, []string{"Invalid spec.activeDeadlineSeconds"}},
		{"toleration added", nil, func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }, nil},
		{"toleration removed", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} },
			func(p *corev1.Pod) { p.Spec.Tolerations = nil }, []string{"Forbidden spec.tolerations"}},
		{"negative grace", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(-1)) },
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, nil},
		{"gate removed", gated, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, nil},
		{"gate added", nil, gated, []string{"Forbidden spec.schedulingGates[0]"}},
		{"node selector of a gated pod", gated, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, nil},
		{"node selector", nil, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, []string{"Forbidden spec"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want == nil {
				tc.want = []string{}
			}
			var old *corev1.Pod
			if tc.old != nil {
				old = goodPod(tc.old)
			} else {
				old = goodPod()
			}
			pod := old.DeepCopy()
			tc.change(pod)
			defaultPod(pod)
			if diff := cmp.Diff(tc.want, short(validatePodUpdate(pod, old))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
	old := goodPod()
	pod := goodPod(func(p *corev1.Pod) { p.Spec.Hostname = "x" })
	errs := validatePodUpdate(pod, old)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Detail, "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,") {
		t.Errorf("message: %v", errs)
	}
}

func TestEphemeralContainersUpdate(t *testing.T) {
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "busybox"}}
	old := goodPod()
	pod := goodPod(func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug} })
	if errs := ValidateEphemeralContainersUpdate(pod, old); len(errs) != 0 {
		t.Errorf("added: %v", errs)
	}
	if got := short(ValidateEphemeralContainersUpdate(old, pod)); !slices.Equal(got, []string{"Forbidden spec.ephemeralContainers"}) {
		t.Errorf("removed: %v", got)
	}
	pod.Spec.Hostname = "changed"
	PrepareEphemeralContainersUpdate(pod, old)
	if pod.Spec.Hostname != "" || len(pod.Spec.EphemeralContainers) != 1 {
		t.Errorf("prepared: %+v", pod.Spec)
	}
}
