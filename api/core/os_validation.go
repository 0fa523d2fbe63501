package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// operatingSystem checks the named operating system, and that nothing asks for what the other one offers.
func (p *problems) operatingSystem(spec *corev1.PodSpec, path *field.Path) {
	at := path.Child("os", "name")
	if spec.OS.Name == "" {
		p.required(at, "cannot be empty")
		return
	}
	oneOf(p, at, spec.OS.Name, corev1.Linux, corev1.Windows)
	switch spec.OS.Name {
	case corev1.Linux:
		p.linux(spec, path)
	case corev1.Windows:
		p.windows(spec, path)
	}
}

func (p *problems) linux(spec *corev1.PodSpec, path *field.Path) {
	const message = "windows options cannot be set for a linux pod"
	if sc := spec.SecurityContext; sc != nil && sc.WindowsOptions != nil {
		p.forbidden(path.Child("securityContext", "windowsOptions"), message)
	}
	eachSecurityContext(spec, path, func(sc *corev1.SecurityContext, path *field.Path) {
		if sc.WindowsOptions != nil {
			p.forbidden(path.Child("windowsOptions"), message)
		}
	})
}

type setting struct {
	name string
	set  bool
}

func (p *problems) notOnWindows(path *field.Path, settings []setting) {
	for _, s := range settings {
		if s.set {
			p.forbidden(path.Child(s.name), "cannot be set for a windows pod")
		}
	}
}

func (p *problems) windows(spec *corev1.PodSpec, path *field.Path) {
	p.notOnWindows(path, []setting{
		{"hostUsers", spec.HostUsers != nil},
		{"hostPID", spec.HostPID},
		{"hostIPC", spec.HostIPC},
	})
	if sc := spec.SecurityContext; sc != nil {
		p.notOnWindows(path.Child("securityContext"), []setting{
			{"appArmorProfile", sc.AppArmorProfile != nil},
			{"seLinuxOptions", sc.SELinuxOptions != nil},
			{"seccompProfile", sc.SeccompProfile != nil},
			{"fsGroup", sc.FSGroup != nil},
			{"fsGroupChangePolicy", sc.FSGroupChangePolicy != nil},
			{"sysctls", len(sc.Sysctls) > 0},
			{"runAsUser", sc.RunAsUser != nil},
			{"runAsGroup", sc.RunAsGroup != nil},
			{"supplementalGroups", sc.SupplementalGroups != nil},
			{"supplementalGroupsPolicy", sc.SupplementalGroupsPolicy != nil},
		})
	}
	p.notOnWindows(path, []setting{{"shareProcessNamespace", spec.ShareProcessNamespace != nil}})
	eachSecurityContext(spec, path, func(sc *corev1.SecurityContext, path *field.Path) {
		p.notOnWindows(path, []setting{
			{"appArmorProfile", sc.AppArmorProfile != nil},
			{"seLinuxOptions", sc.SELinuxOptions != nil},
			{"seccompProfile", sc.SeccompProfile != nil},
			{"capabilities", sc.Capabilities != nil},
			{"readOnlyRootFilesystem", sc.ReadOnlyRootFilesystem != nil},
			{"privileged", sc.Privileged != nil},
			{"allowPrivilegeEscalation", sc.AllowPrivilegeEscalation != nil},
			{"procMount", sc.ProcMount != nil},
			{"runAsUser", sc.RunAsUser != nil},
			{"runAsGroup", sc.RunAsGroup != nil},
		})
	})
}

// eachSecurityContext calls f for the security contexts of all containers that have one.
func eachSecurityContext(spec *corev1.PodSpec, path *field.Path, f func(*corev1.SecurityContext, *field.Path)) {
	eachContainer(spec, path, func(c *corev1.Container, path *field.Path) {
		if c.SecurityContext != nil {
			f(c.SecurityContext, path.Child("securityContext"))
		}
	})
}

// eachContainer calls f for all containers of a pod, which it may change: init containers, containers, ephemeral
// containers.
func eachContainer(spec *corev1.PodSpec, path *field.Path, f func(*corev1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		f(&c, path.Child("ephemeralContainers").Index(i))
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}
