package controllers

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// daemonSets runs one pod of each DaemonSet on every node that suits it.
type daemonSets struct {
	*podControl
	queue   *queue.Queue[string]
	access  client.Resource[*appsv1.DaemonSet]
	lister  client.TypedLister[*appsv1.DaemonSet]
	nodes   client.TypedLister[*corev1.Node]
	history *history
	failed  *flowcontrol.Backoff
}

func newDaemonSets(d Deps) Controller {
	return &daemonSets{podControl: newPodControl(d, "DaemonSet"), queue: queue.New[string](), access: client.For[*appsv1.DaemonSet](d.Client), failed: flowcontrol.NewBackOff(time.Second, 15*time.Minute)}
}

func (c *daemonSets) Run(ctx context.Context) error {
	c.podControl.lister = c.pods.Lister(ctx)
	c.lister = c.access.Lister(ctx)
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	c.history = newHistory(ctx, c.Deps)
	everyone := func() {
		for ds := range c.lister.All("") {
			c.queue.Add(ds.Namespace + "/" + ds.Name)
		}
	}
	note := func(e client.Event) {
		c.byOwner.Apply(e)
		switch obj := e.Object().(type) {
		case *appsv1.DaemonSet:
			if e.New == nil {
				c.seen.forget(obj.UID)
				return
			}
			c.queue.Add(obj.Namespace + "/" + obj.Name)
		case *appsv1.ControllerRevision:
			if key, ok := ownerKey(obj, "DaemonSet"); ok {
				c.queue.Add(key)
			}
		case *corev1.Node:
			old, _ := e.Old.(*corev1.Node)
			if e.New == nil || old == nil || !equality.Semantic.DeepEqual(old.Labels, obj.Labels) || !equality.Semantic.DeepEqual(old.Spec.Taints, obj.Spec.Taints) {
				everyone()
			}
		case *corev1.Pod:
			noteOwners(e, "DaemonSet", c.queue.Add, func(pod *corev1.Pod) {
				for ds := range c.lister.All(pod.Namespace) {
					if selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
						c.queue.Add(ds.Namespace + "/" + ds.Name)
					}
				}
			})
		}
	}
	return loop(ctx, c.Deps, c.queue, 2, c.sync, note, c.access.Scope(), client.For[*corev1.Node](c.Client).Scope(), c.pods.Scope(), c.history.access.Scope())
}

// daemonNode is a node as a DaemonSet sees it: whether a pod may start there, and whether one that runs there may stay.
type daemonNode struct {
	name        string
	start, stay bool
}

// judge says which nodes suit the pods of a template.
func judge(template *corev1.PodTemplateSpec, nodes iter.Seq[*corev1.Node]) []daemonNode {
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: template.Spec})
	tolerations := slices.Concat(template.Spec.Tolerations, daemonTolerations(template.Spec.HostNetwork))
	var out []daemonNode
	for node := range nodes {
		n := daemonNode{name: node.Name}
		if to := template.Spec.NodeName; to == "" || to == node.Name {
			if fits, err := affinity.Match(node); err == nil && fits {
				n.start, n.stay = tolerated(node.Spec.Taints, tolerations)
			}
		}
		out = append(out, n)
	}
	return out
}

func tolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (start, stay bool) {
	start, stay = true, true
	for i := range taints {
		t := &taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(tolerations, func(x corev1.Toleration) bool { return x.ToleratesTaint(klog.Background(), t, false) }) {
			continue
		}
		start = false
		if t.Effect == corev1.TaintEffectNoExecute {
			stay = false
		}
	}
	return start, stay
}

// daemonTolerations are given to every pod of a DaemonSet.
func daemonTolerations(hostNetwork bool) []corev1.Toleration {
	var out []corev1.Toleration
	add := func(key string, effect corev1.TaintEffect) {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if hostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return out
}

// podNode is the node that a pod is for: where it is, or where its affinity sends it.
func podNode(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

func (c *daemonSets) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	ds, ok := c.lister.Get(namespace, name)
	if !ok {
		return 0, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil || selector.Empty() {
		c.Events.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return 0, nil
	}
	kind := c.access.Kind().GroupVersionKind
	settled := c.settled(ds)
	pods, err := c.claim(ctx, ds, kind, selector)
	if err != nil || ds.DeletionTimestamp != nil {
		return 0, err
	}
	revisions, err := c.history.list(ctx, ds, kind, selector)
	if err != nil {
		return 0, err
	}
	collisions := ptr.Deref(ds.Status.CollisionCount, 0)
	current, revisions, err := c.history.current(ctx, ds, kind, &ds.Spec.Template, revisions, &collisions, true)
	if err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		return 0, err
	}
	d := &daemonRun{
		DaemonSet: ds, hash: current.Labels[appsv1.ControllerRevisionHashLabelKey], byNode: map[string][]*corev1.Pod{},
		collisions: collisions, nodes: judge(&ds.Spec.Template, c.nodes.All("")),
	}
	for _, p := range pods {
		d.byNode[podNode(p)] = append(d.byNode[podNode(p)], p)
	}
	var manageErr error
	again := settleTime
	if settled {
		again, manageErr = c.manage(ctx, d)
		if manageErr == nil && ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType && c.seen.idle(ds.UID) {
			manageErr = c.roll(ctx, d)
		}
	}
	if err := c.history.trim(ctx, revisions, ds.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool {
		hash := r.Labels[appsv1.ControllerRevisionHashLabelKey]
		return r.Name == current.Name || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash })
	}); err != nil {
		return 0, err
	}
	wait, err := c.updateStatus(ctx, d)
	if manageErr != nil {
		if apierrors.HasStatusCause(manageErr, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
		return 0, manageErr
	}
	return soonest(wait, again), err
}

// daemonRun is one step's view of a DaemonSet.
type daemonRun struct {
	*appsv1.DaemonSet
	hash   string
	byNode map[string][]*corev1.Pod
	nodes  []daemonNode

	collisions int32
}

func (d *daemonRun) updated(p *corev1.Pod) bool {
	return p.Labels[appsv1.ControllerRevisionHashLabelKey] == d.hash
}

// manage makes the pods that are missing and removes those that should not be. A pod that failed again and again is
// replaced later each time; manage says when the next one is due.
func (c *daemonSets) manage(ctx context.Context, d *daemonRun) (time.Duration, error) {
	var wait time.Duration
	var create []string
	var remove []*corev1.Pod
	exists := map[string]bool{}
	for _, node := range d.nodes {
		exists[node.name] = true
		pods := d.byNode[node.name]
		if !node.stay {
			remove = append(remove, pods...)
			continue
		}
		var alive []*corev1.Pod
		for _, p := range pods {
			switch {
			case p.DeletionTimestamp != nil:
				alive = append(alive, p) // its successor waits for it to be gone
			case p.Status.Phase == corev1.PodFailed:
				alive = append(alive, p)
				if left := c.failureDelay(d, node.name); left > 0 {
					wait = soonest(wait, left)
					continue
				}
				c.Events.Eventf(d.DaemonSet, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, node.name)
				remove = append(remove, p)
			case p.Status.Phase == corev1.PodSucceeded:
				alive = append(alive, p)
				c.Events.Eventf(d.DaemonSet, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", p.Namespace, p.Name, node.name)
				remove = append(remove, p)
			default:
				alive = append(alive, p)
			}
		}
		switch {
		case len(alive) == 0 && node.start:
			create = append(create, node.name)
		case len(alive) > 1 && d.surge() == 0:
			slices.SortFunc(alive, func(a, b *corev1.Pod) int {
				return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
			})
			for _, p := range alive[1:] {
				if podActive(p) {
					remove = append(remove, p)
				}
			}
		}
	}
	for name, pods := range d.byNode {
		if name != "" && !exists[name] {
			remove = append(remove, pods...)
		}
	}
	if err := c.deleteAll(ctx, d.DaemonSet, remove); err != nil {
		return 0, err
	}
	return wait, c.createOn(ctx, d, create)
}

// failureDelay is how long a failed pod of a node is left alone; when that is over, the next delay is longer.
func (c *daemonSets) failureDelay(d *daemonRun, node string) time.Duration {
	key := string(d.UID) + "/" + node
	now := time.Now()
	c.failed.GC()
	if c.failed.IsInBackOffSinceUpdate(key, now) {
		return max(c.failed.Get(key), time.Second)
	}
	c.failed.Next(key, now)
	return 0
}

func (c *daemonSets) createOn(ctx context.Context, d *daemonRun, nodes []string) error {
	template := setTemplateLabel(&d.Spec.Template, appsv1.ControllerRevisionHashLabelKey, d.hash)
	if generation, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]; ok {
		template.Labels["pod-template-generation"] = generation
	}
	_, err := slowStart(min(len(nodes), burst), func(i int) error {
		pod := podFromTemplate(template, d.DaemonSet, c.access.Kind().GroupVersionKind)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, daemonTolerations(pod.Spec.HostNetwork)...)
		sendTo(pod, nodes[i])
		_, err := c.create(ctx, d.DaemonSet, pod)
		return err
	})
	return err
}

// sendTo binds a pod to a node by affinity, so that the scheduler still checks resources and ports.
func sendTo(pod *corev1.Pod, node string) {
	field := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{field}}},
		}
		return
	}
	for i := range required.NodeSelectorTerms {
		required.NodeSelectorTerms[i].MatchFields = []corev1.NodeSelectorRequirement{field}
	}
}

// surge and unavailable are the strategy's bounds, in pods.
func (d *daemonRun) surge() int {
	return d.bound(func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxSurge })
}
func (d *daemonRun) unavailable() int {
	return d.bound(func(r *appsv1.RollingUpdateDaemonSet) *intstr.IntOrString { return r.MaxUnavailable })
}

// desired is the number of nodes that are to run a pod.
func (d *daemonRun) desired() int {
	n := 0
	for _, node := range d.nodes {
		if node.start {
			n++
		}
	}
	return n
}

func (d *daemonRun) bound(of func(*appsv1.RollingUpdateDaemonSet) *intstr.IntOrString) int {
	r := d.Spec.UpdateStrategy.RollingUpdate
	if r == nil || of(r) == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of(r), d.desired(), true)
	if err != nil {
		return 0
	}
	return n
}

// roll replaces old pods, as many at a time as the strategy allows.
func (c *daemonSets) roll(ctx context.Context, d *daemonRun) error {
	now := time.Now()
	if d.surge() > 0 {
		return c.rollSurging(ctx, d, now)
	}
	room := d.unavailable()
	var idle, serving []*corev1.Pod
	for _, node := range d.nodes {
		available := !node.start
		for _, p := range d.byNode[node.name] {
			ok, _ := podAvailable(p, d.Spec.MinReadySeconds, now)
			ok = ok && p.DeletionTimestamp == nil
			available = available || ok
			if !d.updated(p) && podActive(p) {
				if ok {
					serving = append(serving, p)
				} else {
					idle = append(idle, p)
				}
			}
		}
		if !available {
			room--
		}
	}
	// Pods that serve nobody are replaced at once.
	remove := append(idle, serving[:min(len(serving), max(0, room))]...)
	return c.deleteAll(ctx, d.DaemonSet, remove)
}

// rollSurging starts the new pod of a node beside the old one, which goes once the new one is available.
func (c *daemonSets) rollSurging(ctx context.Context, d *daemonRun, now time.Time) error {
	surge := d.surge()
	var create []string
	var remove []*corev1.Pod
	for node, pods := range d.byNode {
		var old, fresh *corev1.Pod
		for _, p := range pods {
			if !podActive(p) {
				continue
			}
			if d.updated(p) {
				fresh = p
			} else {
				old = p
			}
		}
		if old == nil {
			continue
		}
		oldServes, _ := podAvailable(old, d.Spec.MinReadySeconds, now)
		if fresh != nil {
			surge--
			if ok, _ := podAvailable(fresh, d.Spec.MinReadySeconds, now); ok {
				remove = append(remove, old)
			}
			continue
		}
		if !oldServes {
			remove = append(remove, old)
			continue
		}
		create = append(create, node)
	}
	slices.Sort(create)
	if err := c.deleteAll(ctx, d.DaemonSet, remove); err != nil {
		return err
	}
	return c.createOn(ctx, d, create[:min(len(create), max(0, surge))])
}

func (c *daemonSets) updateStatus(ctx context.Context, d *daemonRun) (time.Duration, error) {
	s := appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, CollisionCount: d.Status.CollisionCount, Conditions: d.Status.Conditions}
	if d.collisions > 0 {
		s.CollisionCount = &d.collisions
	}
	now := time.Now()
	var wait time.Duration
	for _, node := range d.nodes {
		pods := slices.DeleteFunc(slices.Clone(d.byNode[node.name]), func(p *corev1.Pod) bool { return podEnded(p) })
		if !node.start {
			if len(pods) > 0 {
				s.NumberMisscheduled++
			}
			continue
		}
		s.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		ready, available, updated := false, false, false
		for _, p := range pods {
			if p.DeletionTimestamp != nil {
				continue
			}
			ready = ready || podReady(p)
			ok, left := podAvailable(p, d.Spec.MinReadySeconds, now)
			available = available || ok
			wait = soonest(wait, left)
			updated = updated || d.updated(p)
		}
		if ready {
			s.NumberReady++
		}
		if available {
			s.NumberAvailable++
		}
		if updated {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	if equality.Semantic.DeepEqual(s, d.Status) {
		return wait, nil
	}
	next := d.DaemonSet.DeepCopy()
	next.Status = s
	if _, err := c.access.UpdateStatus(ctx, next); err != nil {
		if apierrors.IsConflict(err) {
			return 10 * time.Millisecond, nil
		}
		return 0, ignoreGone(fmt.Errorf("update status: %w", err))
	}
	return wait, nil
}
