package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa/client"
	"proa/node/cgroup"
)

// sandboxConfig describes a pod's sandbox to the runtime, and names the runtime's handler.
func (n *Node) sandboxConfig(ctx context.Context, p *pod, api *corev1.Pod, attempt uint32) (*cri.PodSandboxConfig, string, error) {
	dns, err := n.dnsConfig(api)
	if err != nil {
		return nil, "", err
	}
	config := &cri.PodSandboxConfig{
		Metadata:    &cri.PodSandboxMetadata{Name: api.Name, Namespace: api.Namespace, Uid: string(api.UID), Attempt: attempt},
		DnsConfig:   dns,
		Labels:      map[string]string{},
		Annotations: map[string]string{},
		Linux:       &cri.LinuxPodSandboxConfig{Sysctls: map[string]string{}},
	}
	for k, v := range api.Labels {
		config.Labels[k] = v
	}
	config.Labels[labelPodName], config.Labels[labelPodNamespace], config.Labels[labelPodUID] = api.Name, api.Namespace, string(api.UID)
	for k, v := range api.Annotations {
		config.Annotations[k] = v
	}
	if n.LogDir != "" {
		config.LogDirectory = n.podLogDir(api)
	}
	if !api.Spec.HostNetwork {
		config.Hostname = n.hostname(api)
	}
	for _, c := range slices.Concat(api.Spec.InitContainers, api.Spec.Containers) {
		for _, port := range c.Ports {
			protocol := cri.Protocol_TCP
			switch port.Protocol {
			case corev1.ProtocolUDP:
				protocol = cri.Protocol_UDP
			case corev1.ProtocolSCTP:
				protocol = cri.Protocol_SCTP
			}
			config.PortMappings = append(config.PortMappings, &cri.PortMapping{
				Protocol: protocol, ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	if n.cgroups != nil {
		config.Linux.CgroupParent = n.cgroups.Path(api.UID, qosClass(api))
	}
	if sc := api.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			config.Linux.Sysctls[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
		}
	}
	if config.Linux.SecurityContext, err = n.sandboxSecurity(p, api); err != nil {
		return nil, "", err
	}
	config.Linux.Resources = sandboxResources(api)
	if api.Spec.Overhead != nil {
		config.Linux.Overhead = &cri.LinuxContainerResources{
			CpuShares: int64(cgroup.Shares(api.Spec.Overhead.Cpu().MilliValue())), MemoryLimitInBytes: api.Spec.Overhead.Memory().Value(),
		}
	}
	handler := ""
	if name := api.Spec.RuntimeClassName; name != nil && *name != "" {
		class, err := client.For[*nodev1.RuntimeClass](n.Client).Get(ctx, "", *name)
		if err != nil {
			return nil, "", fmt.Errorf("failed to get runtime class %q: %w", *name, err)
		}
		handler = class.Handler
	}
	return config, handler, nil
}

func sandboxResources(api *corev1.Pod) *cri.LinuxContainerResources {
	s := podCgroup(api)
	out := &cri.LinuxContainerResources{CpuShares: int64(s.Shares), MemoryLimitInBytes: s.Memory}
	if s.Quota > 0 {
		out.CpuPeriod, out.CpuQuota = cgroup.Period, s.Quota
	}
	return out
}

func (n *Node) sandboxSecurity(p *pod, api *corev1.Pod) (*cri.LinuxSandboxSecurityContext, error) {
	out := &cri.LinuxSandboxSecurityContext{
		Privileged: slices.ContainsFunc(slices.Concat(api.Spec.InitContainers, api.Spec.Containers), func(c corev1.Container) bool {
			return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		}),
		Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
	}
	var err error
	if out.NamespaceOptions, err = n.namespaces(p, api); err != nil {
		return nil, err
	}
	sc := api.Spec.SecurityContext
	if sc == nil {
		return out, nil
	}
	if sc.RunAsUser != nil {
		out.RunAsUser = &cri.Int64Value{Value: *sc.RunAsUser}
	}
	if sc.RunAsGroup != nil && sc.RunAsUser != nil {
		out.RunAsGroup = &cri.Int64Value{Value: *sc.RunAsGroup}
	}
	if sc.FSGroup != nil {
		out.SupplementalGroups = append(out.SupplementalGroups, *sc.FSGroup)
	}
	out.SupplementalGroups = append(out.SupplementalGroups, sc.SupplementalGroups...)
	out.SupplementalGroupsPolicy = groupsPolicy(sc)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
	return out, nil
}

func groupsPolicy(sc *corev1.PodSecurityContext) cri.SupplementalGroupsPolicy {
	if sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		return cri.SupplementalGroupsPolicy_Strict
	}
	return cri.SupplementalGroupsPolicy_Merge
}

func selinux(o *corev1.SELinuxOptions) *cri.SELinuxOption {
	if o == nil {
		return nil
	}
	return &cri.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// namespaces that a pod's containers share with each other or the node.
func (n *Node) namespaces(p *pod, api *corev1.Pod) (*cri.NamespaceOption, error) {
	out := &cri.NamespaceOption{Network: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
	if api.Spec.HostNetwork {
		out.Network = cri.NamespaceMode_NODE
	}
	if api.Spec.HostIPC {
		out.Ipc = cri.NamespaceMode_NODE
	}
	switch {
	case api.Spec.HostPID:
		out.Pid = cri.NamespaceMode_NODE
	case api.Spec.ShareProcessNamespace != nil && *api.Spec.ShareProcessNamespace:
		out.Pid = cri.NamespaceMode_POD
	}
	out.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_NODE}
	if api.Spec.HostUsers != nil && !*api.Spec.HostUsers {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.usernsAt == 0 {
			first, err := n.userns.take()
			if err != nil {
				return nil, err
			}
			p.usernsAt = first
		}
		mapping := []*cri.IDMapping{{HostId: p.usernsAt, ContainerId: 0, Length: usernsLength}}
		out.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping}
	}
	return out, nil
}

// hostname of a pod, cut to what the kernel takes, or its full name when it asks for that.
func (n *Node) hostname(api *corev1.Pod) string {
	name := api.Name
	if api.Spec.Hostname != "" {
		name = api.Spec.Hostname
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	if domain := n.podDomain(api); domain != "" && api.Spec.SetHostnameAsFQDN != nil && *api.Spec.SetHostnameAsFQDN {
		return name + "." + domain
	}
	return name
}

func (n *Node) podDomain(api *corev1.Pod) string {
	if api.Spec.Subdomain == "" {
		return ""
	}
	return fmt.Sprintf("%s.%s.svc.%s", api.Spec.Subdomain, api.Namespace, n.ClusterDomain)
}

// Limits of resolv.conf as upstream validates them.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// dnsConfig works out a pod's resolv.conf from its policy.
func (n *Node) dnsConfig(api *corev1.Pod) (*cri.DNSConfig, error) {
	out := &cri.DNSConfig{}
	policy := api.Spec.DNSPolicy
	switch {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSDefault,
		policy == corev1.DNSClusterFirst && api.Spec.HostNetwork,
		len(n.ClusterDNS) == 0:
		host, err := n.hostDNS()
		if err != nil {
			return nil, err
		}
		out = host
		if len(n.ClusterDNS) == 0 && policy != corev1.DNSDefault && !api.Spec.HostNetwork && n.RootDir != "" {
			n.event(api, "", corev1.EventTypeWarning, "MissingClusterDNS", fmt.Sprintf("pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", api.Name+"_"+api.Namespace+"("+string(api.UID)+")", policy, corev1.DNSDefault))
		}
	default:
		for _, a := range n.ClusterDNS {
			out.Servers = append(out.Servers, a.String())
		}
		out.Searches = []string{api.Namespace + ".svc." + n.ClusterDomain, "svc." + n.ClusterDomain, n.ClusterDomain}
		if host, err := n.hostDNS(); err == nil {
			out.Searches = append(out.Searches, host.Searches...)
		}
		out.Options = []string{"ndots:5"}
	}
	if c := api.Spec.DNSConfig; c != nil {
		out.Servers = unique(append(out.Servers, c.Nameservers...))
		out.Searches = unique(append(out.Searches, c.Searches...))
		out.Options = mergeOptions(out.Options, c.Options)
	}
	out.Searches = unique(out.Searches)
	if len(out.Servers) > maxNameservers {
		out.Servers = out.Servers[:maxNameservers]
		n.event(api, "", corev1.EventTypeWarning, "DNSConfigForming", fmt.Sprintf("Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: %s", strings.Join(out.Servers, " ")))
	}
	if len(out.Searches) > maxSearches || len(strings.Join(out.Searches, " ")) > maxSearchChars {
		out.Searches = out.Searches[:min(len(out.Searches), maxSearches)]
		for len(strings.Join(out.Searches, " ")) > maxSearchChars {
			out.Searches = out.Searches[:len(out.Searches)-1]
		}
		n.event(api, "", corev1.EventTypeWarning, "DNSConfigForming", fmt.Sprintf("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: %s", strings.Join(out.Searches, " ")))
	}
	return out, nil
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func mergeOptions(have []string, more []corev1.PodDNSConfigOption) []string {
	for _, o := range more {
		have = slices.DeleteFunc(have, func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		})
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		have = append(have, text)
	}
	return have
}

// hostDNS reads the node's resolv.conf. A hollow node has none.
func (n *Node) hostDNS() (*cri.DNSConfig, error) {
	out := &cri.DNSConfig{}
	if n.RootDir == "" {
		return out, nil
	}
	data, err := os.ReadFile(n.HostResolvConf)
	if err != nil {
		if os.IsNotExist(err) {
			return out, nil
		}
		return nil, fmt.Errorf("read resolv.conf: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			out.Servers = append(out.Servers, words[1])
		case "search":
			out.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				out.Searches = append(out.Searches, s)
			}
		case "options":
			out.Options = words[1:]
		}
	}
	return out, nil
}

// hostsFile is the content of a pod's /etc/hosts.
func (n *Node) hostsFile(api *corev1.Pod, ips []string) ([]byte, error) {
	var b strings.Builder
	if api.Spec.HostNetwork {
		data, err := os.ReadFile("/etc/hosts")
		if err != nil {
			return nil, fmt.Errorf("read hosts of the node: %w", err)
		}
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(data)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		name := api.Spec.Hostname
		if name == "" {
			name = api.Name
		}
		if len(name) > 63 {
			name = strings.TrimRight(name[:63], "-.")
		}
		for _, ip := range ips {
			b.WriteString(ip + "\t")
			if domain := n.podDomain(api); domain != "" {
				b.WriteString(name + "." + domain + "\t")
			}
			b.WriteString(name + "\n")
		}
	}
	if len(api.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range api.Spec.HostAliases {
			b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
		}
	}
	return []byte(b.String()), nil
}
