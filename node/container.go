package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/node/env"
)

// containerConfig describes a container to the runtime. Its errors are shown to users as they are.
func (n *Node) containerConfig(ctx context.Context, p *pod, api *corev1.Pod, c *corev1.Container, image *cri.Image, ips []string, restarts uint32) (*cri.ContainerConfig, error) {
	if err := verifyUser(api, c, image); err != nil {
		return nil, err
	}
	if api.Spec.HostNetwork && len(n.Addresses) > 0 {
		ips = n.hostIPs()
	}
	variables, err := env.Container(ctx, env.Input{
		Pod: api, Services: n.linkedServices(api), Allocatable: n.allocatable(), HostIPs: n.hostIPs(), PodIPs: ips,
		Sources: n.sources.forPod(api.UID),
		Invalid: func(kind, name string, keys []string) {
			n.event(api, "", corev1.EventTypeWarning, "InvalidEnvironmentVariableNames", fmt.Sprintf("Keys [%s] from the EnvFrom %s %s/%s were skipped since they are considered invalid environment variable names.", strings.Join(keys, ", "), kindText(kind), api.Namespace, name))
		},
	}, c)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string, len(variables))
	config := &cri.ContainerConfig{
		Metadata:   &cri.ContainerMetadata{Name: c.Name, Attempt: restarts},
		Image:      &cri.ImageSpec{Image: image.Id, UserSpecifiedImage: c.Image},
		WorkingDir: c.WorkingDir,
		Labels: map[string]string{
			labelPodName: api.Name, labelPodNamespace: api.Namespace, labelPodUID: string(api.UID), labelContainerName: c.Name,
		},
		Annotations: map[string]string{
			annotationHash:              containerHash(c),
			annotationRestartCount:      strconv.FormatUint(uint64(restarts), 10),
			annotationTerminationPath:   c.TerminationMessagePath,
			annotationTerminationPolicy: string(c.TerminationMessagePolicy),
		},
		Stdin: c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &cri.LinuxContainerConfig{},
	}
	for k, v := range api.Annotations {
		if strings.HasPrefix(k, "simulated.proa/") {
			config.Annotations[k] = v
		}
	}
	if s := api.Spec.TerminationGracePeriodSeconds; s != nil {
		config.Annotations[annotationPodGrace] = strconv.FormatInt(*s, 10)
	}
	for _, v := range variables {
		values[v.Name] = v.Value
		config.Envs = append(config.Envs, &cri.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	for _, s := range c.Command {
		config.Command = append(config.Command, env.Expand(s, lookup))
	}
	for _, s := range c.Args {
		config.Args = append(config.Args, env.Expand(s, lookup))
	}
	if n.LogDir != "" {
		config.LogPath = filepath.Join(c.Name, strconv.FormatUint(uint64(restarts), 10)+".log")
	}
	config.Linux.Resources = n.containerResources(api, c)
	if config.Linux.SecurityContext, err = n.containerSecurity(p, api, c, image); err != nil {
		return nil, err
	}
	if n.RootDir != "" {
		if config.Mounts, err = n.mounts(api, c, lookup, ips); err != nil {
			return nil, err
		}
		if err := n.devices(api, c, config); err != nil {
			return nil, err
		}
	}
	return config, nil
}

func kindText(kind string) string {
	if kind == "ConfigMap" {
		return "configMap"
	}
	return "secret"
}

// linkedServices are the services that a pod's environment names: the cluster's own always, its namespace's if wanted.
func (n *Node) linkedServices(api *corev1.Pod) []*corev1.Service {
	if n.services.Lister == nil {
		return nil
	}
	var out []*corev1.Service
	if s, ok := n.services.Get(metaDefault, "kubernetes"); ok {
		out = append(out, s)
	}
	if api.Spec.EnableServiceLinks == nil || *api.Spec.EnableServiceLinks {
		for s := range n.services.All(api.Namespace) {
			if s.Namespace != metaDefault || s.Name != "kubernetes" {
				out = append(out, s)
			}
		}
	}
	return out
}

const metaDefault = "default"

// verifyUser holds runAsNonRoot: the user must be known and not be root.
func verifyUser(api *corev1.Pod, c *corev1.Container, image *cri.Image) error {
	var nonRoot *bool
	var user *int64
	if sc := api.Spec.SecurityContext; sc != nil {
		nonRoot, user = sc.RunAsNonRoot, sc.RunAsUser
	}
	if sc := c.SecurityContext; sc != nil {
		if sc.RunAsNonRoot != nil {
			nonRoot = sc.RunAsNonRoot
		}
		if sc.RunAsUser != nil {
			user = sc.RunAsUser
		}
	}
	if nonRoot == nil || !*nonRoot {
		return nil
	}
	name := fmt.Sprintf("%s_%s(%s)", api.Name, api.Namespace, api.UID)
	switch {
	case user != nil && *user == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", name, c.Name)
	case user != nil:
		return nil
	case image.Uid != nil && image.Uid.Value == 0, image.Uid == nil && image.Username == "":
		return fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", name, c.Name)
	case image.Uid == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)", image.Username, name, c.Name)
	}
	return nil
}

// Paths that containers do not see or may not write, unless procMount says otherwise.
func maskedPaths() []string {
	return []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func (n *Node) containerSecurity(p *pod, api *corev1.Pod, c *corev1.Container, image *cri.Image) (*cri.LinuxContainerSecurityContext, error) {
	psc, sc := api.Spec.SecurityContext, c.SecurityContext
	if psc == nil {
		psc = &corev1.PodSecurityContext{}
	}
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	out := &cri.LinuxContainerSecurityContext{
		Privileged:     sc.Privileged != nil && *sc.Privileged,
		ReadonlyRootfs: sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		NoNewPrivs:     sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		SelinuxOptions: selinux(or(sc.SELinuxOptions, psc.SELinuxOptions)),
		Seccomp:        n.seccomp(or(sc.SeccompProfile, psc.SeccompProfile), sc),
	}
	var err error
	if out.NamespaceOptions, err = n.namespaces(p, api); err != nil {
		return nil, err
	}
	for _, e := range api.Spec.EphemeralContainers {
		if e.Name == c.Name && e.TargetContainerName != "" {
			p.mu.Lock()
			target := p.newest(e.TargetContainerName)
			p.mu.Unlock()
			if target == nil || target.State != cri.ContainerState_CONTAINER_RUNNING {
				return nil, fmt.Errorf("unable to find target container %s", e.TargetContainerName)
			}
			out.NamespaceOptions.Pid, out.NamespaceOptions.TargetId = cri.NamespaceMode_TARGET, target.Id
		}
	}
	switch user := or(sc.RunAsUser, psc.RunAsUser); {
	case user != nil:
		out.RunAsUser = &cri.Int64Value{Value: *user}
	case image.Uid != nil:
		out.RunAsUser = &cri.Int64Value{Value: image.Uid.Value}
	case image.Username != "":
		out.RunAsUsername = image.Username
	default:
		// Runtimes take a group only together with a user, and an image that names none runs as root.
		out.RunAsUser = &cri.Int64Value{}
	}
	if group := or(sc.RunAsGroup, psc.RunAsGroup); group != nil {
		out.RunAsGroup = &cri.Int64Value{Value: *group}
	}
	if psc.FSGroup != nil {
		out.SupplementalGroups = append(out.SupplementalGroups, *psc.FSGroup)
	}
	out.SupplementalGroups = append(out.SupplementalGroups, psc.SupplementalGroups...)
	out.SupplementalGroupsPolicy = groupsPolicy(psc)
	if sc.Capabilities != nil {
		out.Capabilities = &cri.Capability{}
		for _, k := range sc.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(k))
		}
		for _, k := range sc.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(k))
		}
	}
	if a := or(sc.AppArmorProfile, psc.AppArmorProfile); a != nil {
		switch a.Type {
		case corev1.AppArmorProfileTypeUnconfined:
			out.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
		case corev1.AppArmorProfileTypeLocalhost:
			out.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}
			if a.LocalhostProfile != nil {
				out.Apparmor.LocalhostRef = *a.LocalhostProfile
			}
		default:
			out.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		}
	}
	if !out.Privileged && (sc.ProcMount == nil || *sc.ProcMount == corev1.DefaultProcMount) {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths(), readonlyPaths()
	}
	return out, nil
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func (n *Node) seccomp(profile *corev1.SeccompProfile, sc *corev1.SecurityContext) *cri.SecurityProfile {
	switch {
	case profile == nil || profile.Type == corev1.SeccompProfileTypeUnconfined, sc.Privileged != nil && *sc.Privileged:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	case profile.Type == corev1.SeccompProfileTypeLocalhost && profile.LocalhostProfile != nil:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: filepath.Join(n.RootDir, "seccomp", *profile.LocalhostProfile)}
	}
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
}

// mounts of a container: its volumes, the hosts file and the place of its last words.
func (n *Node) mounts(api *corev1.Pod, c *corev1.Container, lookup func(string) (string, bool), ips []string) ([]*cri.Mount, error) {
	var out []*cri.Mount
	hosts := !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return filepath.Clean(m.MountPath) == "/etc/hosts" })
	for _, m := range c.VolumeMounts {
		mount, err := n.mount(api, c, m, lookup)
		if err != nil {
			return nil, err
		}
		if mount != nil {
			out = append(out, mount)
		}
	}
	if hosts && (len(ips) > 0 || api.Spec.HostNetwork) {
		data, err := n.hostsFile(api, ips)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(n.podDir(api), "etc-hosts")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return nil, fmt.Errorf("write hosts: %w", err)
		}
		if err := os.Chmod(file, 0o644); err != nil { // whatever the umask was
			return nil, fmt.Errorf("write hosts: %w", err)
		}
		out = append(out, &cri.Mount{ContainerPath: "/etc/hosts", HostPath: file, SelinuxRelabel: true, Readonly: c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil && *c.SecurityContext.ReadOnlyRootFilesystem})
	}
	if c.TerminationMessagePath != "" {
		dir := filepath.Join(n.podDir(api), "containers", c.Name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, fmt.Errorf("make folder of termination message: %w", err)
		}
		var id [4]byte
		_, _ = rand.Read(id[:]) // never fails
		file := filepath.Join(dir, hex.EncodeToString(id[:]))
		if err := os.WriteFile(file, nil, 0o666); err != nil {
			return nil, fmt.Errorf("make file of termination message: %w", err)
		}
		if err := os.Chmod(file, 0o666); err != nil { // the container's user writes it
			return nil, fmt.Errorf("make file of termination message: %w", err)
		}
		out = append(out, &cri.Mount{ContainerPath: c.TerminationMessagePath, HostPath: file, SelinuxRelabel: true})
	}
	return out, nil
}

func (n *Node) mount(api *corev1.Pod, c *corev1.Container, m corev1.VolumeMount, lookup func(string) (string, bool)) (*cri.Mount, error) {
	source, ok := n.volumes.Path(api.UID, m.Name)
	if !ok {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name, c.Name)
	}
	out := &cri.Mount{
		ContainerPath: m.MountPath, HostPath: source.Path, Readonly: m.ReadOnly || source.ReadOnly, SelinuxRelabel: source.Relabel,
	}
	if !filepath.IsAbs(out.ContainerPath) {
		out.ContainerPath = "/" + out.ContainerPath
	}
	if r := m.RecursiveReadOnly; r != nil && m.ReadOnly && *r == corev1.RecursiveReadOnlyEnabled {
		out.RecursiveReadOnly = true
	}
	if m.MountPropagation != nil {
		switch *m.MountPropagation {
		case corev1.MountPropagationHostToContainer:
			out.Propagation = cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			out.Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	sub := m.SubPath
	if m.SubPathExpr != "" {
		missing := ""
		sub = env.Expand(m.SubPathExpr, func(name string) (string, bool) {
			value, ok := lookup(name)
			if !ok {
				missing = name
			}
			return value, ok
		})
		if missing != "" {
			return nil, fmt.Errorf("missing value for %q", missing)
		}
	}
	if sub != "" {
		if filepath.IsAbs(sub) {
			return nil, fmt.Errorf("error SubPath `%s` must not be an absolute path", sub)
		}
		if slices.Contains(strings.Split(sub, "/"), "..") {
			return nil, errors.New("must not contain '..'")
		}
		path, err := n.volumes.SubPath(api, m.Name, c.Name, sub)
		if err != nil {
			n.Log.Debug("subPath not prepared", "pod", api.Namespace+"/"+api.Name, "container", c.Name, "err", err)
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", m.Name, c.Name)
		}
		out.HostPath = path
	}
	return out, nil
}

// devices gives a container the block volumes it asks for.
func (n *Node) devices(api *corev1.Pod, c *corev1.Container, config *cri.ContainerConfig) error {
	for _, d := range c.VolumeDevices {
		source, ok := n.volumes.Path(api.UID, d.Name)
		if !ok {
			return fmt.Errorf("cannot find volume %q to pass into container %q", d.Name, c.Name)
		}
		permissions := "mrw"
		if source.ReadOnly {
			permissions = "r"
		}
		config.Devices = append(config.Devices, &cri.Device{ContainerPath: d.DevicePath, HostPath: source.Path, Permissions: permissions})
	}
	return nil
}

// volumeField reads what a file of a downwardAPI volume shows.
func (n *Node) volumeField(api *corev1.Pod, file *corev1.DownwardAPIVolumeFile) (string, error) {
	if file.FieldRef != nil {
		return env.PodField(api, file.FieldRef.FieldPath, nil, nil)
	}
	if file.ResourceFieldRef == nil {
		return "", errors.New("a file of the downwardAPI volume has no source")
	}
	c := env.Find(api, file.ResourceFieldRef.ContainerName)
	if c == nil {
		return "", fmt.Errorf("container %s not found", file.ResourceFieldRef.ContainerName)
	}
	return env.ResourceField(c, file.ResourceFieldRef, n.allocatable())
}
