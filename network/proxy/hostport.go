package proxy

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostPort is a port of the node that leads to a pod on it.
type hostPort struct {
	proto Protocol
	at    netip.AddrPort // an unspecified address means any of the node's
	to    netip.AddrPort
}

// hostPorts of a pod that runs in a network of its own, in the order of its containers.
func hostPorts(pod *corev1.Pod) []hostPort {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	var out []hostPort
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, port := range c.Ports {
				if port.HostPort == 0 {
					continue
				}
				for _, ip := range pod.Status.PodIPs {
					to, err := netip.ParseAddr(ip.IP)
					if err != nil {
						continue
					}
					at := familyOf(to).unspecified()
					if port.HostIP != "" {
						if at, err = netip.ParseAddr(port.HostIP); err != nil || familyOf(at) != familyOf(to) {
							continue
						}
					}
					out = append(out, hostPort{
						protocol(port.Protocol), netip.AddrPortFrom(at, uint16(port.HostPort)), netip.AddrPortFrom(to, uint16(port.ContainerPort)),
					})
				}
			}
		}
	}
	return out
}

// buildHostPorts makes a pod's part of the table.
func buildHostPorts(pod types.NamespacedName, list []hostPort) *unit {
	u := newUnit()
	for _, p := range list {
		f := familyOf(p.to.Addr())
		rules := []Rule{{inside("saddr", only(p.to.Addr())), mark()}}
		if f == ipv4 {
			// The pod would answer its own loopback.
			rules = append(rules, Rule{inside("saddr", loopback4), mark()})
		}
		rules = append(rules, Rule{isProtocol(p.proto), dnat(p.to)})
		chain := u.chain(unique("host", f, fmt.Sprintf("%s/%s/%d", pod, p.proto, p.to.Port())), rules...)
		set, key := hostIPs, Key{p.at.Addr(), p.proto, p.at.Port()}
		if key.Addr.IsUnspecified() {
			set, key.Addr = anyHostPorts, netip.Addr{}
		}
		u.element(set, f, key, goTo(chain))
		if p.proto != TCP {
			u.flows = append(u.flows, flow{p.at, p.proto, map[netip.AddrPort]bool{p.to: true}})
		}
	}
	return u
}
