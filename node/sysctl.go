package node

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// safeSysctls are the kernel parameters that pods may set without harm to others, as documented for 1.31.
func safeSysctls() map[string]bool {
	return map[string]bool{
		"kernel.shm_rmid_forced":              true,
		"net.ipv4.ip_local_port_range":        true,
		"net.ipv4.tcp_syncookies":             true,
		"net.ipv4.ping_group_range":           true,
		"net.ipv4.ip_unprivileged_port_start": true,
		"net.ipv4.ip_local_reserved_ports":    true,
		"net.ipv4.tcp_keepalive_time":         true,
		"net.ipv4.tcp_fin_timeout":            true,
		"net.ipv4.tcp_keepalive_intvl":        true,
		"net.ipv4.tcp_keepalive_probes":       true,
	}
}

// refuseSysctls finds a parameter that a pod may not set: one that is not safe, or that would be the node's own because
// the pod shares the namespace it lives in.
func refuseSysctls(api *corev1.Pod) *refusal {
	sc := api.Spec.SecurityContext
	if sc == nil || len(sc.Sysctls) == 0 {
		return nil
	}
	safe := safeSysctls()
	for _, s := range sc.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		problem := ""
		switch {
		case !safe[name]:
			problem = "not allowlisted"
		case api.Spec.HostNetwork && strings.HasPrefix(name, "net."):
			problem = "not allowed with host net enabled"
		case api.Spec.HostIPC && !strings.HasPrefix(name, "net."):
			problem = "not allowed with host ipc enabled"
		}
		if problem != "" {
			return &refusal{"SysctlForbidden", fmt.Sprintf("forbidden sysctl: %q %s", s.Name, problem)}
		}
	}
	return nil
}
