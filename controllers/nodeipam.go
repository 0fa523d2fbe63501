package controllers

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa/client"
	"proa/internal/queue"
)

// nodeIPAM gives every node a range of pod addresses of its own.
type nodeIPAM struct {
	Deps
	queue *queue.Queue[string]
	nodes client.TypedLister[*corev1.Node]

	mu   sync.Mutex
	used map[netip.Prefix]string // range to node
}

func newNodeIPAM(d Deps) Controller {
	return &nodeIPAM{Deps: d, queue: queue.New[string](), used: map[netip.Prefix]string{}}
}

func (c *nodeIPAM) Run(ctx context.Context) error {
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 1, c.sync, func(e client.Event) {
		node := e.Object().(*corev1.Node)
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.New == nil {
			// Also what was taken for it but never written.
			maps.DeleteFunc(c.used, func(_ netip.Prefix, owner string) bool { return owner == node.Name })
			return
		}
		for _, s := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(s); err == nil {
				c.used[p.Masked()] = node.Name
			}
		}
		if len(node.Spec.PodCIDRs) == 0 {
			c.queue.Add(node.Name)
		}
	}, client.For[*corev1.Node](c.Client).Scope())
}

func (c *nodeIPAM) sync(ctx context.Context, name string) (time.Duration, error) {
	node, ok := c.nodes.Get("", name)
	if !ok || len(node.Spec.PodCIDRs) > 0 || len(c.Config.PodCIDRs) == 0 {
		return 0, nil
	}
	next := node.DeepCopy()
	for _, pool := range c.Config.PodCIDRs {
		p, ok := c.take(pool, name)
		if !ok {
			c.Events.Event(node, corev1.EventTypeNormal, "CIDRNotAvailable", fmt.Sprintf("Node %s status is now: CIDRNotAvailable", name))
			return 0, fmt.Errorf("no range left in %v for node %s", pool, name)
		}
		next.Spec.PodCIDRs = append(next.Spec.PodCIDRs, p.String())
	}
	next.Spec.PodCIDR = next.Spec.PodCIDRs[0]
	_, err := client.For[*corev1.Node](c.Client).Update(ctx, next)
	return 0, ignoreGone(err)
}

// take reserves the first free range: /24 of IPv4, smaller ones when the pool has few, /64 of IPv6.
func (c *nodeIPAM) take(pool netip.Prefix, node string) (netip.Prefix, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bits := max(24, pool.Bits())
	if pool.Addr().Is6() {
		bits = max(64, pool.Bits())
	}
	for p := netip.PrefixFrom(pool.Masked().Addr(), bits); pool.Contains(p.Addr()); p = following(p) {
		if c.free(p, node) {
			c.used[p] = node
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// free reports whether no other node has any part of a range. The caller holds mu.
func (c *nodeIPAM) free(p netip.Prefix, node string) bool {
	if owner, ok := c.used[p]; ok {
		return owner == node
	}
	for used := range c.used {
		if used.Bits() != p.Bits() && used.Overlaps(p) {
			return false
		}
	}
	return true
}

// following is the next range of the same size.
func following(p netip.Prefix) netip.Prefix {
	b := p.Addr().AsSlice()
	for i, carry := (p.Bits()-1)/8, 1<<(7-(p.Bits()-1)%8); i >= 0 && carry > 0; i-- {
		n := int(b[i]) + carry
		b[i], carry = byte(n), n>>8
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits())
}
