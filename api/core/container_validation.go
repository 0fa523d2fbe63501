package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// containerContext is what the validation of a container needs to know of its pod.
type containerContext struct {
	spec    *corev1.PodSpec
	volumes map[string]*corev1.VolumeSource
	claims  map[string]bool
	grace   int64
	names   map[string]bool
}

func (c *containerContext) ownUsers() bool {
	return c.spec.HostUsers != nil && !*c.spec.HostUsers
}

func (p *problems) containers(c *containerContext, path *field.Path) {
	c.names = map[string]bool{}
	containers, inits := path.Child("containers"), path.Child("initContainers")
	if len(c.spec.Containers) == 0 {
		p.required(containers, "")
	}
	for i := range c.spec.Containers {
		ctr, at := &c.spec.Containers[i], containers.Index(i)
		p.container(c, ctr, at)
		if ctr.RestartPolicy != nil {
			p.forbidden(at.Child("restartPolicy"), "may not be set for non-init containers")
		}
		p.lifecycle(c, ctr.Lifecycle, at.Child("lifecycle"))
		p.probes(c, ctr, at)
	}
	p.hostPortsUnique(c.spec.Containers, containers)
	for i := range c.spec.InitContainers {
		ctr, at := &c.spec.InitContainers[i], inits.Index(i)
		p.container(c, ctr, at)
		p.initContainer(c, ctr, at)
		// An init container ends before the next begins, so ports need to be unique in each alone.
		p.hostPortsUnique(c.spec.InitContainers[i:i+1], inits)
	}
	p.ephemeralContainers(c, path.Child("ephemeralContainers"))
}

// container checks what holds for all kinds of containers.
func (p *problems) container(c *containerContext, ctr *corev1.Container, path *field.Path) {
	p.label(path.Child("name"), ctr.Name)
	if ctr.Name != "" {
		if c.names[ctr.Name] {
			p.duplicate(path.Child("name"), ctr.Name)
		}
		c.names[ctr.Name] = true
	}
	p.some(path.Child("image"), ctr.Image)
	exactlyOneOf(p, path.Child("terminationMessagePolicy"), ctr.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)
	p.ports(ctr.Ports, c.spec.HostNetwork, path.Child("ports"))
	p.env(ctr.Env, path.Child("env"))
	p.envFrom(ctr.EnvFrom, path.Child("envFrom"))
	p.volumeMounts(c, ctr, path.Child("volumeMounts"))
	p.volumeDevices(c, ctr, path.Child("volumeDevices"))
	exactlyOneOf(p, path.Child("imagePullPolicy"), ctr.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	p.resources(&ctr.Resources, c.claims, path.Child("resources"))
	p.security(c, ctr.SecurityContext, path.Child("securityContext"))
}

func (p *problems) initContainer(c *containerContext, ctr *corev1.Container, path *field.Path) {
	if isSidecar(ctr) {
		p.lifecycle(c, ctr.Lifecycle, path.Child("lifecycle"))
		p.probes(c, ctr, path)
		return
	}
	if ctr.RestartPolicy != nil {
		optional(p, path.Child("restartPolicy"), ctr.RestartPolicy, corev1.ContainerRestartPolicyAlways)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", ctr.Lifecycle != nil},
		{"livenessProbe", ctr.LivenessProbe != nil},
		{"readinessProbe", ctr.ReadinessProbe != nil},
		{"startupProbe", ctr.StartupProbe != nil},
	} {
		if f.set {
			p.forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always")
		}
	}
}

func (p *problems) ports(ports []corev1.ContainerPort, hostNetwork bool, path *field.Path) {
	names := map[string]bool{}
	for i, port := range ports {
		at := path.Index(i)
		if port.Name != "" {
			if msgs := utilvalidation.IsValidPortName(port.Name); len(msgs) > 0 {
				p.messages(at.Child("name"), port.Name, msgs)
			} else if names[port.Name] {
				p.duplicate(at.Child("name"), port.Name)
			}
			names[port.Name] = true
		}
		if port.ContainerPort == 0 {
			p.required(at.Child("containerPort"), "")
		} else {
			p.port(at.Child("containerPort"), port.ContainerPort)
		}
		if port.HostPort != 0 {
			p.port(at.Child("hostPort"), port.HostPort)
			if hostNetwork && port.HostPort != port.ContainerPort {
				p.invalid(at.Child("containerPort"), port.ContainerPort, "must match `hostPort` when `hostNetwork` is true")
			}
		}
		exactlyOneOf(p, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

func (p *problems) hostPortsUnique(containers []corev1.Container, path *field.Path) {
	seen := map[string]bool{}
	for i, c := range containers {
		for j, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			id := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if seen[id] {
				p.duplicate(path.Index(i).Child("ports").Index(j).Child("hostPort"), id)
			}
			seen[id] = true
		}
	}
}

func (p *problems) envFrom(sources []corev1.EnvFromSource, path *field.Path) {
	for i, s := range sources {
		at := path.Index(i)
		if s.Prefix != "" {
			p.messages(at.Child("prefix"), s.Prefix, utilvalidation.IsEnvVarName(s.Prefix))
		}
		if s.ConfigMapRef != nil {
			p.name(at.Child("configMapRef", "name"), s.ConfigMapRef.Name)
		}
		if s.SecretRef != nil {
			p.name(at.Child("secretRef", "name"), s.SecretRef.Name)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			p.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`")
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			p.invalid(at, "", "may not have more than one field specified at a time")
		}
	}
}

func (p *problems) volumeMounts(c *containerContext, ctr *corev1.Container, path *field.Path) {
	devices, devicePaths := map[string]bool{}, map[string]bool{}
	for _, d := range ctr.VolumeDevices {
		devices[d.Name], devicePaths[d.DevicePath] = true, true
	}
	seen := map[string]bool{}
	for i := range ctr.VolumeMounts {
		m, at := &ctr.VolumeMounts[i], path.Index(i)
		p.some(at.Child("name"), m.Name)
		if c.volumes[m.Name] == nil {
			p.notFound(at.Child("name"), m.Name)
		}
		p.some(at.Child("mountPath"), m.MountPath)
		if seen[m.MountPath] {
			p.invalid(at.Child("mountPath"), m.MountPath, "must be unique")
		}
		seen[m.MountPath] = true
		if devices[m.Name] {
			p.invalid(at.Child("name"), m.Name, "must not already exist in volumeDevices")
		}
		if devicePaths[m.MountPath] {
			p.invalid(at.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices")
		}
		p.descending(at.Child("subPath"), m.SubPath)
		p.descending(at.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			p.invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		p.propagation(m, ctr, at)
		p.recursiveReadOnly(m, at.Child("recursiveReadOnly"))
	}
}

func (p *problems) propagation(m *corev1.VolumeMount, ctr *corev1.Container, path *field.Path) {
	if m.MountPropagation == nil {
		return
	}
	at := path.Child("mountPropagation")
	optional(p, at, m.MountPropagation,
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
	if *m.MountPropagation == corev1.MountPropagationBidirectional && !privileged {
		p.forbidden(at, "Bidirectional mount propagation is available only to privileged containers")
	}
}

func (p *problems) recursiveReadOnly(m *corev1.VolumeMount, path *field.Path) {
	if m.RecursiveReadOnly == nil {
		return
	}
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyDisabled:
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !m.ReadOnly {
			p.forbidden(path, "may only be specified when readOnly is true")
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			p.forbidden(path, "may only be specified when mountPropagation is None or not specified")
		}
	default:
		optional(p, path, m.RecursiveReadOnly,
			corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
	}
}

// descending checks a path that must stay below where it starts.
func (p *problems) descending(path *field.Path, value string) {
	if strings.HasPrefix(value, "/") {
		p.invalid(path, value, "must be a relative path")
	}
	p.noBacksteps(path, value)
}

func (p *problems) noBacksteps(path *field.Path, value string) {
	for _, part := range strings.Split(value, "/") {
		if part == ".." {
			p.invalid(path, value, "must not contain '..'")
			return
		}
	}
}

func (p *problems) volumeDevices(c *containerContext, ctr *corev1.Container, path *field.Path) {
	mounts, mountPaths := map[string]bool{}, map[string]bool{}
	for _, m := range ctr.VolumeMounts {
		mounts[m.Name], mountPaths[m.MountPath] = true, true
	}
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range ctr.VolumeDevices {
		at := path.Index(i)
		p.some(at.Child("name"), d.Name)
		if names[d.Name] {
			p.invalid(at.Child("name"), d.Name, "must be unique")
		}
		names[d.Name] = true
		source := c.volumes[d.Name]
		switch {
		case source == nil:
			p.notFound(at.Child("name"), d.Name)
		case source.PersistentVolumeClaim == nil && source.Ephemeral == nil:
			p.invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if p.some(at.Child("devicePath"), d.DevicePath) {
			if paths[d.DevicePath] {
				p.invalid(at.Child("devicePath"), d.DevicePath, "must be unique")
			}
			p.noBacksteps(at.Child("devicePath"), d.DevicePath)
		}
		paths[d.DevicePath] = true
		if mounts[d.Name] {
			p.invalid(at.Child("name"), d.Name, "must not already exist in volumeMounts")
		}
		if mountPaths[d.DevicePath] {
			p.invalid(at.Child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts")
		}
	}
}

func (p *problems) ephemeralContainers(c *containerContext, path *field.Path) {
	targets := sets.New[string]()
	for _, ctr := range c.spec.Containers {
		targets.Insert(ctr.Name)
	}
	for _, ctr := range c.spec.InitContainers {
		targets.Insert(ctr.Name)
	}
	for i := range c.spec.EphemeralContainers {
		e, at := &c.spec.EphemeralContainers[i], path.Index(i)
		ctr := corev1.Container(e.EphemeralContainerCommon)
		p.container(c, &ctr, at)
		if e.TargetContainerName != "" && !targets.Has(e.TargetContainerName) {
			p.notFound(at.Child("targetContainerName"), e.TargetContainerName)
		}
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"ports", len(ctr.Ports) > 0},
			{"livenessProbe", ctr.LivenessProbe != nil},
			{"readinessProbe", ctr.ReadinessProbe != nil},
			{"startupProbe", ctr.StartupProbe != nil},
			{"lifecycle", ctr.Lifecycle != nil},
			{"resources", len(ctr.Resources.Limits)+len(ctr.Resources.Requests)+len(ctr.Resources.Claims) > 0},
			{"restartPolicy", ctr.RestartPolicy != nil},
			{"resizePolicy", len(ctr.ResizePolicy) > 0},
		} {
			if f.set {
				p.forbidden(at.Child(f.name), "cannot be set for an Ephemeral Container")
			}
		}
		for j, m := range ctr.VolumeMounts {
			if m.SubPath != "" {
				p.forbidden(at.Child("volumeMounts").Index(j).Child("subPath"), "cannot be set for an Ephemeral Container")
			}
			if m.SubPathExpr != "" {
				p.forbidden(at.Child("volumeMounts").Index(j).Child("subPathExpr"), "cannot be set for an Ephemeral Container")
			}
		}
	}
}
