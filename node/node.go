// Package node is the agent of one node: it registers the node, keeps its lease and status, and brings the pods bound to
// it to life through a container runtime. Every pod is one state machine (pod.go, plan.go): a change in the API or in the
// runtime puts its key into a queue, a worker looks at the present state, writes the status, and starts at most one job
// for it (start.go, stop.go), whose end puts the key back. A pod at rest costs neither a goroutine nor, without probes, a
// timer. What containers see of the outside is made in packages env and volumes, their health is asked in probes.go.
package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/client"
	"proa/client/events"
	"proa/internal/queue"
	"proa/node/cgroup"
	"proa/node/runtime"
	"proa/node/volumes"
)

// Version is the Kubernetes version that the agent behaves as.
const Version = "v1.31.14"

// relistPeriod is how often the runtime is asked for everything, should an event have been lost.
const relistPeriod = 5 * time.Minute

// Config of an agent. Name, Client, Runtime and Log are required.
type Config struct {
	Name    string
	Client  client.Interface
	Runtime runtime.Runtime
	Log     *slog.Logger
	// Events records for component "kubelet" of host Name; nil records nothing.
	Events *events.Recorder

	// RootDir holds what pods need on disk. Without it (hollow nodes) pods have no volumes, logs or managed files.
	RootDir string
	// LogDir holds the containers' logs; default RootDir/logs.
	LogDir string

	// Addresses of the node, the primary one first.
	Addresses  []netip.Addr
	ServerPort int32

	ClusterDNS []netip.Addr
	// ClusterDomain defaults to cluster.local.
	ClusterDomain string
	// HostResolvConf is the resolv.conf that pods of dnsPolicy Default get; default /etc/resolv.conf.
	HostResolvConf string

	Labels      map[string]string
	Annotations map[string]string
	Taints      []corev1.Taint
	// MaxPods defaults to 110.
	MaxPods int
	// Capacity replaces what is measured of the machine; Reserved is taken off what pods may have.
	Capacity, Reserved corev1.ResourceList

	// CgroupRoot is the cgroup below which pods' cgroups are made, such as "/proa". Without it the runtime chooses.
	CgroupRoot, CgroupMount string
	// Unprivileged says that the agent may not lower the out-of-memory score of processes: negative ones become 0.
	Unprivileged bool

	// ProviderID of the node object; optional.
	ProviderID string
	// Subscribe tells of the pods bound to this node and of the node itself; default a subscription of Client.
	Subscribe func(ctx context.Context, handle func(client.Event)) error
	// Workers of the queue; default 8, and 1 without RootDir.
	Workers int
	// OwnPodCIDRs are ranges of pod addresses that the node brings along; without them the cluster gives it some.
	OwnPodCIDRs []netip.Prefix
	// Hollow says that nothing listens in the pods: network probes and hooks succeed without a packet.
	Hollow bool
	// PodCIDRs is told of the node's ranges of pod addresses once the API has given it some; optional.
	PodCIDRs func([]netip.Prefix)
	// SkipRegistration leaves the node object and the lease to somebody else.
	SkipRegistration bool
}

// Node is the agent. Use New.
type Node struct {
	Config
	pods       client.Resource[*corev1.Pod]
	queue      *queue.Queue[types.UID]
	cgroups    *cgroup.Tree
	volumes    *volumes.Manager
	sources    *sources
	services   client.TypedLister[*corev1.Service]
	images     imagePuller
	userns     usernsPool
	jobs       sync.WaitGroup
	starts     chan struct{} // limits jobs that start sandboxes
	ctx        context.Context
	statusWake chan struct{}
	// admission is held while a pod is admitted; it comes before the other locks.
	admission sync.Mutex
	// runtimeName is the scheme of container IDs.
	runtimeName string
	measure     sync.Once
	measured    corev1.ResourceList
	// What the heartbeat alone uses, and the subscription alone.
	lease                               *coordinationv1.Lease
	infoRead, handlersRead, imagesStale bool
	toldCIDRs                           bool

	mu        sync.RWMutex
	byUID     map[types.UID]*pod
	byName    map[types.NamespacedName]types.UID
	sandboxes map[string]types.UID
	synced    bool
	node      *corev1.Node // as last seen or written
}

// New checks the configuration.
func New(config Config) (*Node, error) {
	if config.Name == "" || config.Client == nil || config.Runtime == nil || config.Log == nil {
		return nil, errors.New("node needs a name, a client, a runtime and a log")
	}
	n := &Node{
		Config:     config,
		pods:       client.For[*corev1.Pod](config.Client),
		queue:      queue.New[types.UID](),
		statusWake: make(chan struct{}, 1),
		byUID:      map[types.UID]*pod{},
		byName:     map[types.NamespacedName]types.UID{},
		sandboxes:  map[string]types.UID{},
		starts:     make(chan struct{}, 8),
	}
	n.images.init()
	if n.ClusterDomain == "" {
		n.ClusterDomain = "cluster.local"
	}
	if n.HostResolvConf == "" {
		n.HostResolvConf = "/etc/resolv.conf"
	}
	if n.MaxPods == 0 {
		n.MaxPods = 110
	}
	if n.Workers == 0 {
		n.Workers = 8
		if n.RootDir == "" {
			n.Workers = 1
		}
	}
	if n.RootDir != "" && n.LogDir == "" {
		n.LogDir = filepath.Join(n.RootDir, "logs")
	}
	if n.Subscribe == nil {
		scope := n.pods.Scope()
		scope.Fields = fields.OneTermEqualSelector("spec.nodeName", n.Name)
		self := client.For[*corev1.Node](n.Client).Scope()
		self.Fields = fields.OneTermEqualSelector("metadata.name", n.Name)
		n.Subscribe = func(ctx context.Context, handle func(client.Event)) error {
			return n.Client.Subscribe(ctx, handle, scope, self)
		}
	}
	if n.CgroupRoot != "" {
		tree, err := cgroup.New(n.CgroupMount, n.CgroupRoot, n.Log)
		if err != nil {
			return nil, err
		}
		n.cgroups = tree
	}
	return n, nil
}

// Run does the node's work until ctx ends. Containers keep running.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.ctx = ctx
	n.sources = newSources(ctx, n.Client, n.configChanged)
	if n.RootDir != "" {
		n.services = client.For[*corev1.Service](n.Client).Lister(ctx)
		n.volumes = volumes.New(volumes.Config{
			RootDir: n.RootDir, Node: n.Name, Client: n.Client, Sources: n.sources, Log: n.Log, Fields: n.volumeField, Changed: n.volumesDue,
		})
	}
	if n.cgroups != nil {
		if err := n.cgroups.Setup(); err != nil {
			return fmt.Errorf("set up cgroups: %w", err)
		}
	}
	version, err := n.Runtime.Version(ctx)
	if err != nil {
		return fmt.Errorf("ask the runtime for its version: %w", err)
	}
	n.runtimeName = version.RuntimeName
	if err := n.adopt(ctx); err != nil {
		return fmt.Errorf("list what runs: %w", err)
	}
	var wg sync.WaitGroup
	part := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	if !n.SkipRegistration {
		part("node status", n.heartbeat)
	}
	part("pods", func(ctx context.Context) error { return n.Subscribe(ctx, n.podEvent) })
	part("runtime events", n.watchRuntime)
	n.queue.AddAfter(everything, relistPeriod)
	n.queue.Run(ctx, n.Log, n.Workers, n.step)
	wg.Wait()
	n.stopProbes()
	n.jobs.Wait()
	n.sources.wait()
	return context.Cause(ctx)
}

// Pods yields the pods bound to the node, as last seen in the API.
func (n *Node) Pods() iter.Seq[*corev1.Pod] {
	return func(yield func(*corev1.Pod) bool) {
		n.mu.RLock()
		pods := make([]*pod, 0, len(n.byUID))
		for _, p := range n.byUID {
			pods = append(pods, p)
		}
		n.mu.RUnlock()
		for _, p := range pods {
			if api := p.object(); api != nil && !yield(api) {
				return
			}
		}
	}
}

// Pod returns a pod bound to the node.
func (n *Node) Pod(namespace, name string) (*corev1.Pod, bool) {
	p := n.named(namespace, name)
	if p == nil {
		return nil, false
	}
	api := p.object()
	return api, api != nil
}

// ContainerID returns the newest container of a name in a pod.
func (n *Node) ContainerID(namespace, name, container string) (string, bool) {
	p := n.named(namespace, name)
	if p == nil {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.newest(container); c != nil {
		return c.Id, true
	}
	return "", false
}

// LogPath returns where the newest container of a name in a pod, or the one before, writes its log.
func (n *Node) LogPath(namespace, name, container string, previous bool) (string, bool) {
	p := n.named(namespace, name)
	if p == nil {
		return "", false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.containers[container]
	if previous && len(list) > 0 {
		list = list[1:]
	}
	if len(list) == 0 {
		return "", false
	}
	return list[0].LogPath, true
}

// CgroupPath returns a pod's cgroup below the mount of cgroups, "" when the agent does not manage them.
func (n *Node) CgroupPath(namespace, name string) string {
	api, ok := n.Pod(namespace, name)
	if !ok || n.cgroups == nil {
		return ""
	}
	return n.cgroups.Path(api.UID, qosClass(api))
}

func (n *Node) named(namespace, name string) *pod {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byUID[n.byName[types.NamespacedName{Namespace: namespace, Name: name}]]
}

func (n *Node) pod(uid types.UID) *pod {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.byUID[uid]
}

// podEvent takes in a change from the API.
func (n *Node) podEvent(e client.Event) {
	if e.Synced() {
		n.mu.Lock()
		n.synced = true
		var all []types.UID
		for uid := range n.byUID {
			all = append(all, uid)
		}
		n.mu.Unlock()
		for _, uid := range all {
			n.queue.Add(uid)
		}
		return
	}
	api, ok := e.Object().(*corev1.Pod)
	if !ok {
		n.nodeEvent(e)
		return
	}
	if old, ok := e.Old.(*corev1.Pod); ok && e.New != nil && old.UID != api.UID {
		n.podGone(old)
	}
	if e.New == nil {
		n.podGone(api)
		return
	}
	n.mu.Lock()
	p := n.byUID[api.UID]
	if p == nil {
		p = newPod(api.UID, n.runtimeName)
		n.byUID[api.UID] = p
	}
	n.byName[types.NamespacedName{Namespace: api.Namespace, Name: api.Name}] = api.UID
	synced := n.synced
	n.mu.Unlock()
	p.mu.Lock()
	old := p.api
	p.api = api
	if old != nil && (!maps.Equal(old.Labels, api.Labels) || !maps.Equal(old.Annotations, api.Annotations)) {
		p.refreshVolumes = true // files may show them
	}
	if old != nil && len(old.Spec.EphemeralContainers) != len(api.Spec.EphemeralContainers) {
		p.mounted = false // a new one may use a volume that no other container does
	}
	if api.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil || grace(old) != grace(api)) {
		// What was being started is not any more, and a shorter grace period counts at once.
		p.interrupt()
	}
	p.mu.Unlock()
	if synced {
		n.queue.Add(api.UID)
	}
}

func (n *Node) podGone(api *corev1.Pod) {
	n.mu.Lock()
	name := types.NamespacedName{Namespace: api.Namespace, Name: api.Name}
	if n.byName[name] == api.UID {
		delete(n.byName, name)
	}
	p := n.byUID[api.UID]
	n.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	p.last, p.api = api, nil
	p.interrupt()
	p.mu.Unlock()
	n.queue.Add(api.UID)
}

// configChanged is told that a ConfigMap or Secret that pods use has changed.
func (n *Node) configChanged(pods []types.UID) {
	for _, uid := range pods {
		if p := n.pod(uid); p != nil {
			p.mu.Lock()
			p.refreshVolumes, p.retry = true, time.Time{}
			p.mu.Unlock()
			n.queue.Add(uid)
		}
	}
}

// volumesDue is told that a pod's volumes have to be looked at after a while, because a token grows old.
func (n *Node) volumesDue(uid types.UID, after time.Duration) {
	p := n.pod(uid)
	if p == nil {
		return
	}
	p.mu.Lock()
	if at := time.Now().Add(after); p.volumesAt.IsZero() || at.Before(p.volumesAt) {
		p.volumesAt = at
	}
	p.mu.Unlock()
	n.queue.Add(uid)
}

// adopt takes over what an earlier run of the agent has started.
func (n *Node) adopt(ctx context.Context) error {
	sandboxes, err := n.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	containers, err := n.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	add := func(labels map[string]string) types.UID {
		uid := types.UID(labels[labelPodUID])
		if uid != "" && n.byUID[uid] == nil {
			p := newPod(uid, n.runtimeName)
			p.adopted = true
			p.last = &corev1.Pod{}
			p.last.UID, p.last.Name, p.last.Namespace = uid, labels[labelPodName], labels[labelPodNamespace]
			n.byUID[uid] = p
		}
		return uid
	}
	for _, s := range sandboxes {
		if uid := add(s.Labels); uid != "" {
			n.sandboxes[s.Id] = uid
		}
	}
	for _, c := range containers {
		add(c.Labels)
	}
	return nil
}

// watchRuntime follows the runtime's events, again after it was away.
func (n *Node) watchRuntime(ctx context.Context) error {
	for ctx.Err() == nil {
		err := n.Runtime.Events(ctx, n.runtimeEvent)
		if ctx.Err() != nil {
			return nil
		}
		n.Log.Warn("runtime events ended", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		n.markAll()
	}
	return nil
}

func (n *Node) runtimeEvent(e runtime.Event) {
	n.mu.RLock()
	p := n.byUID[n.sandboxes[e.Sandbox]]
	n.mu.RUnlock()
	if p == nil {
		// The sandbox is not ours, or is just being made: its maker looks at it afterwards.
		return
	}
	p.markDirty()
	n.queue.Add(p.uid)
}

// everything is the key of the queue that stands for all pods: the runtime is asked what it has.
const everything types.UID = ""

// step handles a key of the queue.
func (n *Node) step(ctx context.Context, uid types.UID) (time.Duration, error) {
	if uid != everything {
		return n.sync(ctx, uid)
	}
	if err := n.relist(ctx); err != nil {
		n.Log.Warn("relist", "err", err)
	}
	return relistPeriod, nil
}

// relist queues the pods whose containers are not in the state last seen.
func (n *Node) relist(ctx context.Context) error {
	if err := n.adopt(ctx); err != nil {
		return err
	}
	list, err := n.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	sandboxes, err := n.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	seen := map[types.UID]map[string]int32{}
	note := func(labels map[string]string, id string, state int32) {
		uid := types.UID(labels[labelPodUID])
		if seen[uid] == nil {
			seen[uid] = map[string]int32{}
		}
		seen[uid][id] = state
	}
	for _, c := range list {
		note(c.Labels, c.Id, int32(c.State))
	}
	for _, s := range sandboxes {
		note(s.Labels, s.Id, int32(s.State))
	}
	n.mu.RLock()
	pods := make([]*pod, 0, len(n.byUID))
	for _, p := range n.byUID {
		pods = append(pods, p)
	}
	n.mu.RUnlock()
	for _, p := range pods {
		if p.differs(seen[p.uid]) {
			p.markDirty()
			n.queue.Add(p.uid)
		}
	}
	return nil
}

func (n *Node) markAll() {
	n.mu.RLock()
	pods := make([]*pod, 0, len(n.byUID))
	for _, p := range n.byUID {
		pods = append(pods, p)
	}
	n.mu.RUnlock()
	for _, p := range pods {
		p.markDirty()
		n.queue.Add(p.uid)
	}
}

func (n *Node) event(object api.Object, container, kind, reason, message string) {
	if n.Events == nil {
		return
	}
	ref := events.Reference(n.Client.Table(), object)
	if pod, ok := object.(*corev1.Pod); ok && container != "" {
		ref.FieldPath = fieldPath(pod, container)
	}
	n.Events.Record(ref, kind, reason, message)
}

func fieldPath(api *corev1.Pod, container string) string {
	list := "spec.containers{"
	if slices.ContainsFunc(api.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container }) {
		list = "spec.initContainers{"
	}
	if slices.ContainsFunc(api.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == container }) {
		list = "spec.ephemeralContainers{"
	}
	return list + container + "}"
}

// hostIPs are the node's addresses as text.
func (n *Node) hostIPs() []string {
	var out []string
	for _, a := range n.Addresses {
		out = append(out, a.String())
	}
	return out
}
