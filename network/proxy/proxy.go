// Package proxy makes Services reachable from a node, and pods through the ports of the node that they ask for: it turns
// Services, their EndpointSlices and the node's pods with host ports into nftables rules that send each new connection to
// an endpoint. It owns one table of the node's network namespace and changes it through netlink in atomic transactions; a
// change of one Service or pod touches the chains and map entries of this one only. The table stays when the proxy ends, so
// that traffic flows while proa is away, and is replaced without a gap when it comes back.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"proa/client"
)

// Config of a node's proxy.
type Config struct {
	Client   client.Interface
	NodeName string
	// PodCIDRs are the ranges of all pods of the cluster. What comes from elsewhere to a cluster IP gets the node's address as its
	// source, so that the answer comes back here.
	PodCIDRs []netip.Prefix
	// Table is the name of the nftables table. Default "proa".
	Table string
	// NetNS is the path of the node's network namespace. Default: that of this process.
	NetNS string
	// HealthPort is where /healthz and /livez say how the proxy is, on all addresses. Default: nowhere.
	HealthPort int32
	// Rules is where the rules go. Default: the kernel's table.
	Rules Rules
	Log   *slog.Logger
}

// Back-off after a transaction that the kernel refused.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Proxy of a node. Use New.
type Proxy struct {
	config    Config
	rules     Rules
	log       *slog.Logger
	slices    *client.Index[*discoveryv1.EndpointSlice]
	conntrack conntrack
	status    status

	mu       sync.Mutex
	services map[types.NamespacedName]*corev1.Service
	pods     map[types.NamespacedName][]hostPort // of this node that have any
	dirty    map[owner]bool
	zone     string
	synced   bool
	wake     chan struct{}
}

// New returns a proxy that does nothing until Run.
func New(c Config) (*Proxy, error) {
	if c.Client == nil || c.NodeName == "" {
		return nil, errors.New("the proxy needs a client and the node's name")
	}
	c.Table = cmp.Or(c.Table, "proa")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Rules == nil {
		c.Rules = NewNetlink(c.Table, c.NetNS)
	}
	return &Proxy{
		config: c, rules: c.Rules, log: c.Log.With("component", "proxy"),
		slices: client.NewIndex(func(s *discoveryv1.EndpointSlice) []string {
			return []string{s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]}
		}),
		conntrack: conntrack{c.NetNS},
		services:  map[types.NamespacedName]*corev1.Service{},
		pods:      map[types.NamespacedName][]hostPort{},
		dirty:     map[owner]bool{},
		wake:      make(chan struct{}, 1),
	}, nil
}

// Run keeps the rules as the objects want them until ctx ends. The rules stay.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := p.config.Client
	node := client.For[*corev1.Node](c).Scope()
	node.Fields = fields.OneTermEqualSelector("metadata.name", p.config.NodeName)
	pods := client.For[*corev1.Pod](c).Scope()
	pods.Fields = fields.OneTermEqualSelector("spec.nodeName", p.config.NodeName)
	var wg sync.WaitGroup
	wg.Go(func() {
		cancel(c.Subscribe(ctx, p.observe,
			client.For[*corev1.Service](c).Scope(), client.For[*discoveryv1.EndpointSlice](c).Scope(), node, pods))
	})
	defer wg.Wait()
	p.loop(ctx)
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// observe notes which Services and pods an event is about.
func (p *Proxy) observe(e client.Event) {
	p.slices.Apply(e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Synced() {
		p.synced = true
	} else {
		switch obj := e.Object().(type) {
		case *corev1.Service:
			name := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
			if e.New == nil {
				delete(p.services, name)
			} else {
				p.services[name] = obj
			}
			p.dirty[owner{NamespacedName: name}] = true
		case *discoveryv1.EndpointSlice:
			for _, o := range []any{e.Old, e.New} {
				if slice, ok := o.(*discoveryv1.EndpointSlice); ok && slice != nil {
					name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
					p.dirty[owner{NamespacedName: name}] = true
				}
			}
		case *corev1.Node:
			if obj.Name != p.config.NodeName {
				return
			}
			p.status.see(obj)
			zone := obj.Labels[corev1.LabelTopologyZone]
			if zone == p.zone {
				return
			}
			p.zone = zone
			for name := range p.services {
				p.dirty[owner{NamespacedName: name}] = true
			}
		case *corev1.Pod:
			name := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
			var ports []hostPort
			if e.New != nil {
				ports = hostPorts(obj)
			}
			if slices.Equal(ports, p.pods[name]) {
				return
			}
			if p.pods[name] = ports; len(ports) == 0 {
				delete(p.pods, name)
			}
			p.dirty[owner{true, name}] = true
		}
	}
	if p.synced && (len(p.dirty) > 0 || e.Synced()) {
		p.signal()
	}
}

func (p *Proxy) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop makes one transaction of all that changed since the last one.
func (p *Proxy) loop(ctx context.Context) {
	h := &health{namespace: p.config.NetNS, log: p.log, status: &p.status, servers: map[types.NamespacedName]*healthServer{}}
	defer h.close()
	if p.config.HealthPort != 0 {
		h.serveStatus(ctx, p.config.HealthPort)
	}
	state, reset := newState(), true
	var pending []flow
	var retry <-chan time.Time
	delay := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-retry:
		}
		retry = nil
		change, flows := p.step(ctx, state, h)
		pending = append(pending, flows...)
		t := change.transaction()
		if reset {
			t = state.reset()
			pending = state.flows()
		} else if len(t.Ops) == 0 {
			continue
		}
		start := time.Now()
		if err := p.rules.Apply(t); err != nil {
			p.log.Error("rules not applied", "err", err, "retry", delay)
			p.status.fail()
			reset, retry, delay = true, time.After(delay), min(2*delay, lastRetry)
			continue
		}
		p.log.Debug("rules applied", "changes", len(t.Ops), "reset", reset, "took", time.Since(start))
		p.status.ok()
		reset, delay = false, firstRetry
		if err := p.conntrack.clean(pending); err != nil {
			p.log.Warn("stale flows not removed", "err", err)
		}
		pending = nil
	}
}

// step brings the state up to date with what changed.
func (p *Proxy) step(ctx context.Context, state *state, h *health) (*change, []flow) {
	c := newChange()
	var flows []flow
	p.mu.Lock()
	owners := slices.SortedFunc(maps.Keys(p.dirty), owner.compare)
	services := make(map[owner]*corev1.Service, len(owners))
	pods := map[owner][]hostPort{}
	for _, o := range owners {
		if o.pod {
			pods[o] = p.pods[o.NamespacedName]
		} else {
			services[o] = p.services[o.NamespacedName]
		}
	}
	clear(p.dirty)
	zone := p.zone
	p.mu.Unlock()

	// Those that go first free the places that others take.
	stays := func(o owner) int { return btoi(services[o] != nil || len(pods[o]) > 0) }
	slices.SortStableFunc(owners, func(a, b owner) int { return cmp.Compare(stays(a), stays(b)) })
	for _, o := range owners {
		var next *unit
		switch s := services[o]; {
		case o.pod && len(pods[o]) > 0:
			next = buildHostPorts(o.NamespacedName, pods[o])
		case o.pod:
		case proxied(s):
			list := ports(s, slices.Collect(p.slices.Lookup(o.String())), p.config.NodeName, zone)
			next = build(list, p.config.PodCIDRs)
			h.set(ctx, o.NamespacedName, s, readyHere(list))
		default:
			h.set(ctx, o.NamespacedName, nil, 0)
		}
		old := state.units[o]
		if old == nil && next == nil {
			continue
		}
		flows = append(flows, stale(old, next)...)
		state.replace(c, o, next)
	}
	if len(c.freed) > 0 {
		// In the next transaction: within one, elements are deleted before others are added.
		p.mu.Lock()
		maps.Copy(p.dirty, c.freed)
		p.mu.Unlock()
		p.signal()
	}
	return c, flows
}

// readyHere counts the ready addresses on this node behind any port. Those that only finish what they have begun
// are not among them, so that balancers stop sending more.
func readyHere(list []servicePort) int {
	found := map[netip.Addr]bool{}
	for _, p := range list {
		for _, a := range p.readyHere {
			found[a] = true
		}
	}
	return len(found)
}

// flows of all units; after a restart nobody knows which of them are stale.
func (s *state) flows() []flow {
	var out []flow
	for _, u := range s.units {
		out = append(out, u.flows...)
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
