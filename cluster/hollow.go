package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa/apiserver/request"
	"proa/client/events"
	"proa/node"
	"proa/node/simulated"
)

// hollowRange holds the addresses of hollow nodes and their pods. It is that of carrier-grade NAT, which no cluster uses.
var hollowRange = netip.MustParsePrefix("100.64.0.0/10")

// hollowPods is the range of one hollow node's pods; the node has its first address. Each brings its range along, so that
// they take none of the cluster's: nobody routes to them.
func hollowPods(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + i>>8), byte(i), 0}), 24)
}

// dialReal connects to nodes and pods, but for hollow ones: what answers at their addresses, if anything, is none of the
// cluster's.
func dialReal(ctx context.Context, network, address string) (net.Conn, error) {
	if at, err := netip.ParseAddrPort(address); err == nil && hollowRange.Contains(at.Addr()) {
		return nil, fmt.Errorf("dial %s: a hollow node runs no containers, so nothing answers", address)
	}
	return (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
}

// startHollow starts the simulated nodes: the usual agent on a runtime that only pretends.
func (s *server) startHollow() error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"),
	}
	recorder := events.New(s.api.Client(&request.User{Name: "system:apiserver", Groups: []string{request.Masters}}, "kubelet"), s.log, "kubelet", "")
	s.group.start("events of hollow nodes", recorder.Run)
	for i := range s.config.HollowNodes {
		name, pods := fmt.Sprintf("hollow-%d", i), hollowPods(i)
		agent, err := node.New(node.Config{
			Name: name, Client: s.nodeClient(name), Runtime: simulated.New(simulated.Config{PodCIDRs: []netip.Prefix{pods}}),
			Log: s.log.With("node", name), Events: recorder, Capacity: capacity,
			Addresses: []netip.Addr{nth(pods, 1)}, OwnPodCIDRs: []netip.Prefix{pods}, ClusterDNS: []netip.Addr{clusterDNS(s.config)},
			Labels: map[string]string{"proa.dev/hollow": "true"}, Hollow: true,
		})
		if err != nil {
			return err
		}
		s.group.start("node "+name, agent.Run)
	}
	return nil
}
