package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodDefaults(t *testing.T) {
	pod := goodPod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = resources("cpu", "1")
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		p.Spec.HostNetwork = true
		p.Spec.Volumes = []corev1.Volume{{Name: "x"}, {Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}}
	})
	c := pod.Spec.Containers[0]
	want := corev1.Container{
		Name: "main", Image: "nginx:1.27", ImagePullPolicy: corev1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		Resources: corev1.ResourceRequirements{Limits: resources("cpu", "1"), Requests: resources("cpu", "1")},
		Ports:     []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}},
		LivenessProbe: &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Scheme: corev1.URISchemeHTTP}},
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
	if pod.Spec.Volumes[0].EmptyDir == nil || *pod.Spec.Volumes[1].Secret.DefaultMode != 0o644 {
		t.Errorf("volumes: %+v", pod.Spec.Volumes)
	}
	s := pod.Spec
	if s.RestartPolicy != "Always" || s.DNSPolicy != "ClusterFirst" || s.SchedulerName != "default-scheduler" ||
		*s.TerminationGracePeriodSeconds != 30 || s.SecurityContext == nil || !*s.EnableServiceLinks {
		t.Errorf("spec: %+v", s)
	}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Limits: resources("cpu", "1")}}}}}
	DefaultPodTemplate(template)
	if template.Spec.EnableServiceLinks != nil || template.Spec.Containers[0].Resources.Requests != nil {
		t.Error("a template has defaults that only pods have")
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": corev1.PullAlways, "nginx:latest": corev1.PullAlways, "nginx:1": corev1.PullIfNotPresent,
		"host:5000/nginx": corev1.PullAlways, "host:5000/nginx:1": corev1.PullIfNotPresent,
		"nginx@sha256:0123": corev1.PullIfNotPresent, "": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%q: %s, want %s", image, got, want)
		}
	}
}

func TestQOSClass(t *testing.T) {
	of := func(requests, limits corev1.ResourceList) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}}}}
	}
	full := resources("cpu", "1", "memory", "1Gi")
	two := of(full, full)
	two.Spec.Containers = append(two.Spec.Containers, corev1.Container{})
	podLevel := of(nil, nil)
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Requests: full, Limits: full}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want corev1.PodQOSClass
	}{
		{"nothing", of(nil, nil), corev1.PodQOSBestEffort},
		{"zero", of(resources("cpu", "0"), nil), corev1.PodQOSBestEffort},
		{"other resource", of(nil, resources("ephemeral-storage", "1")), corev1.PodQOSBestEffort},
		{"equal", of(full, full), corev1.PodQOSGuaranteed},
		{"request only", of(full, nil), corev1.PodQOSBurstable},
		{"half", of(resources("cpu", "1"), resources("cpu", "1")), corev1.PodQOSBurstable},
		{"less", of(resources("cpu", "1", "memory", "1Mi"), full), corev1.PodQOSBurstable},
		{"second without", two, corev1.PodQOSBurstable},
		{"pod level", podLevel, corev1.PodQOSGuaranteed},
	} {
		if got := QOSClass(tc.pod); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestPodGracePeriod(t *testing.T) {
	running := goodPod(func(p *corev1.Pod) { p.Spec.NodeName = "n" })
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		wish   *int64
		want   int64
	}{
		{"spec", func(*corev1.Pod) {}, nil, 30},
		{"wish", func(*corev1.Pod) {}, new(int64(5)), 5},
		{"zero", func(*corev1.Pod) {}, new(int64(0)), 0},
		{"negative", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(-3)) }, nil, 1},
		{"unscheduled", func(p *corev1.Pod) { p.Spec.NodeName = "" }, nil, 0},
		{"finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, new(int64(7)), 0},
	} {
		pod := running.DeepCopy()
		tc.change(pod)
		if got := podGracePeriod(pod, &metav1.DeleteOptions{GracePeriodSeconds: tc.wish}); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestPreparePod(t *testing.T) {
	pod := goodPod(func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}}
		p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"app", "absent"}, MismatchLabelKeys: []string{"tenant"},
		}}}}
		p.Labels["tenant"] = "a"
		p.Status.Phase = corev1.PodRunning
	})
	preparePod(pod)
	if pod.Status.Phase != corev1.PodPending || pod.Status.QOSClass != corev1.PodQOSBestEffort || pod.Status.Conditions[0].Reason != "SchedulingGated" {
		t.Errorf("status: %+v", pod.Status)
	}
	if got := pod.Annotations[appArmorPrefix+"main"]; got != "unconfined" {
		t.Errorf("annotation %q", got)
	}
	want := []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}},
		{Key: "tenant", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}},
	}
	if diff := cmp.Diff(want, pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions); diff != "" {
		t.Errorf("selector (-want +got):\n%s", diff)
	}
	if errs := validatePod(pod); len(errs) != 0 {
		t.Errorf("a prepared pod is invalid: %v", errs)
	}
}

func TestPodCells(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	before := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code, signal int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Signal: signal, Reason: reason}}
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   []any
	}{
		{"running", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, State: running}}
		}, []any{"1/1", "Running", "0"}},
		{"crash loop", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 3, State: waiting("CrashLoopBackOff"),
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: before(5 * time.Minute)}}}}
		}, []any{"0/1", "CrashLoopBackOff", "3 (5m ago)"}},
		{"completed", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodSucceeded
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: ended(0, 0, "Completed")}}
		}, []any{"0/1", "Completed", "0"}},
		{"exit code", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: ended(2, 0, "")}}
		}, []any{"0/1", "ExitCode:2", "0"}},
		{"signal", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: ended(2, 9, "")}}
		}, []any{"0/1", "Signal:9", "0"}},
		{"init", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}, {Name: "b"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: ended(0, 0, "Completed")}, {Name: "b", State: running}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waiting("PodInitializing")}}
		}, []any{"0/1", "Init:1/2", "0"}},
		{"init failed", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "a", RestartCount: 2, State: ended(1, 0, "Error")}}
		}, []any{"0/1", "Init:Error", "2"}},
		{"pod initializing", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Spec.InitContainers = []corev1.Container{{Name: "a"}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "a", State: ended(0, 0, "Completed")}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waiting("PodInitializing")}}
		}, []any{"0/1", "PodInitializing", "0"}},
		{"sidecar", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "a", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "a", RestartCount: 1, Ready: true, Started: new(true), State: running}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true, State: running}}
		}, []any{"2/2", "Running", "1"}},
		{"terminating", func(p *corev1.Pod) { t := before(0); p.DeletionTimestamp = &t }, []any{"0/1", "Terminating", "0"}},
		{"node lost", func(p *corev1.Pod) { t := before(0); p.DeletionTimestamp = &t; p.Status.Reason = "NodeLost" }, []any{"0/1", "Unknown", "0"}},
		{"gated", func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodPending
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: "SchedulingGated"}}
		}, []any{"0/1", "SchedulingGated", "0"}},
		{"evicted", func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" }, []any{"0/1", "Evicted", "0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: before(2 * time.Hour)},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
			tc.change(pod)
			cells := podCells(pod, now)
			if diff := cmp.Diff(tc.want, cells[1:4]); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]any{"120m", none, none, none, none}, cells[4:]); diff != "" {
				t.Errorf("other cells (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodWarnings(t *testing.T) {
	pod := goodPod(func(p *corev1.Pod) {
		p.Name = "a.b"
		p.Spec.NodeSelector = map[string]string{"beta.kubernetes.io/os": "linux"}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
		p.Spec.Containers[0].Resources.Limits = resources("memory", "200m")
		p.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}}}
	})
	want := []string{
		`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`,
		`spec.volumes[0].gitRepo: deprecated in v1.11`,
		`spec.containers[0].resources.limits[memory]: fractional byte value "200m" is invalid, must be an integer`,
		`spec.containers[0].resources.requests[memory]: fractional byte value "200m" is invalid, must be an integer`,
		`spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply`,
	}
	if diff := cmp.Diff(want, podWarnings(pod, nil)[:5]); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
