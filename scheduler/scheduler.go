// Package scheduler gives pending pods a node. It keeps its own picture of nodes and placed pods, fed by one subscription;
// it decides one pod at a time in memory, with the plugins of plugins.go, and binds through the client while the next pod
// is being decided. It never talks to nodes.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa/client"
	"proa/client/events"
	"proa/internal/stack"
)

// Config of a Scheduler.
type Config struct {
	Client client.Interface
	Log    *slog.Logger
	// Events is where Scheduled and FailedScheduling go; nil drops them. Its owner runs it.
	Events *events.Recorder
	// Name is the schedulerName of the pods to place. Default "default-scheduler".
	Name string
	// Seed of the lots that are drawn among equally good nodes.
	Seed uint64
	// Bindings is how many bindings may be on their way at once. Default 64.
	Bindings int
}

// Scheduler places pods. Use New, then Run.
type Scheduler struct {
	config  Config
	pods    client.Resource[*corev1.Pod]
	plugins []weighted
	random  *rand.Rand
	slots   chan struct{}
	wake    chan struct{}
	writes  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	state  *state
	queue  *queue
	start  int // where the next search begins
	synced bool
}

// New returns a scheduler that is not running yet.
func New(config Config) (*Scheduler, error) {
	if config.Client == nil {
		return nil, errors.New("scheduler needs a client")
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Name == "" {
		config.Name = corev1.DefaultSchedulerName
	}
	if config.Bindings <= 0 {
		config.Bindings = 64
	}
	s := &Scheduler{
		config: config,
		pods:   client.For[*corev1.Pod](config.Client),
		random: rand.New(rand.NewPCG(config.Seed, 0)),
		slots:  make(chan struct{}, config.Bindings),
		wake:   make(chan struct{}, 1),
		state:  newState(),
		queue:  newQueue(time.Now),
	}
	s.plugins = defaultPlugins()
	return s, nil
}

// Run places pods until ctx ends, then waits for the writes on their way.
func (s *Scheduler) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.writes.Wait()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := s.config.Client.Subscribe(ctx, func(e client.Event) { s.handle(ctx, e) }, s.scopes()...); err != nil {
			cancel(err)
		}
	})
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		for ctx.Err() == nil && s.step(ctx) {
		}
		s.mu.Lock()
		due, ok := s.queue.next()
		s.mu.Unlock()
		if ok {
			timer.Reset(time.Until(due))
		}
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// signal has the loop look at the queue.
func (s *Scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// handle takes a change into account.
func (s *Scheduler) handle(ctx context.Context, e client.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	if e.Synced() {
		s.synced = true
		return
	}
	switch obj := e.Object().(type) {
	case *corev1.Pod:
		old, _ := e.Old.(*corev1.Pod)
		if e.New == nil {
			obj = nil
		}
		if s.handlePod(ctx, old, obj) {
			return
		}
	case *corev1.Node:
		if e.New == nil {
			s.state.removeNode(obj.Name)
		} else {
			s.state.setNode(obj)
		}
	default:
		s.state.keep(e)
	}
	s.queue.wakeIf(func(entry *entry) bool { return s.helps(e, entry) })
}

// helps asks the plugins that rejected a pod whether e may change their mind.
func (s *Scheduler) helps(e client.Event, entry *entry) bool {
	for _, w := range s.plugins {
		if !entry.rejectedBy.Has(w.name()) {
			continue
		}
		if h, ok := w.plugin.(hinter); !ok || h.hint(e, entry.info.pod) {
			return true
		}
	}
	return false
}

// handlePod returns true when no other pod has to be told.
func (s *Scheduler) handlePod(ctx context.Context, old, pod *corev1.Pod) (done bool) {
	if old != nil && (pod == nil || pod.UID != old.UID) {
		delete(s.state.assumed, old.UID)
		s.state.displace(old.UID)
		s.unqueue(old.UID)
		if pod == nil {
			return old.Spec.NodeName == ""
		}
	}
	switch {
	case finished(pod):
		delete(s.state.assumed, pod.UID)
		s.state.displace(pod.UID)
		s.unqueue(pod.UID)
	case pod.Spec.NodeName != "":
		s.unqueue(pod.UID)
		delete(s.state.assumed, pod.UID)
		if known := s.state.pods[pod.UID]; known != nil && known.node == pod.Spec.NodeName && old != nil && sameForOthers(old, pod) {
			known.pod = pod
			return true
		}
		s.state.place(newPodInfo(pod))
	case s.state.assumed[pod.UID] || pod.Spec.SchedulerName != s.config.Name:
		return true
	case pod.DeletionTimestamp != nil:
		s.unqueue(pod.UID)
		return true
	default:
		s.enqueue(ctx, pod)
		return true
	}
	return false
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// sameForOthers reports whether a change of a placed pod leaves open what other pods may do: the kubelet's status reports
// do.
func sameForOthers(old, pod *corev1.Pod) bool {
	return old.Spec.NodeName == pod.Spec.NodeName && old.DeletionTimestamp.Equal(pod.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(old.Labels, pod.Labels) && equality.Semantic.DeepEqual(old.Spec, pod.Spec)
}

// enqueue takes a new or changed pending pod.
func (s *Scheduler) enqueue(ctx context.Context, pod *corev1.Pod) {
	e := s.queue.pending(pod)
	if e == nil {
		closed := s.gate(pod)
		info := newPodInfo(pod)
		s.queue.add(info, closed != nil)
		s.state.nominate(info, pod.Status.NominatedNodeName)
		if closed != nil {
			s.writes.Go(func() { s.writeCondition(ctx, pod, corev1.PodReasonSchedulingGated, closed.reasons[0], "") })
		}
		return
	}
	changed := !equality.Semantic.DeepEqual(e.info.pod.Spec, pod.Spec) ||
		!equality.Semantic.DeepEqual(e.info.pod.Labels, pod.Labels) ||
		!equality.Semantic.DeepEqual(e.info.pod.Annotations, pod.Annotations)
	if !changed {
		e.info.pod = pod
		return
	}
	e.changed = true
	nominated := e.info.nominated
	s.state.nominate(e.info, "")
	e.info = newPodInfo(pod)
	s.state.nominate(e.info, nominated)
	switch closed := s.gate(pod); {
	case closed != nil:
		s.queue.move(e, gated)
	case e.place == gated:
		s.queue.move(e, active)
	case e.place == waiting:
		s.queue.wake(e)
	case e.place == active:
		s.queue.move(e, active) // its priority may have changed
	}
}

func (s *Scheduler) gate(pod *corev1.Pod) *status {
	for _, w := range s.plugins {
		if p, ok := w.plugin.(preEnqueuer); ok {
			if closed := p.preEnqueue(pod); closed != nil {
				return closed
			}
		}
	}
	return nil
}

// step places one pod; it returns false when none is ready.
func (s *Scheduler) step(ctx context.Context) bool {
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	s.mu.Lock()
	if !s.synced {
		s.mu.Unlock()
		<-s.slots
		return false
	}
	e := s.queue.pop()
	if e == nil {
		s.mu.Unlock()
		<-s.slots
		return false
	}
	d := s.decide(e.info)
	if d.node == nil {
		s.queue.fail(e, d.rejectedBy)
		for _, o := range d.outbid {
			if loser := s.queue.pending(o.pod); loser != nil && loser.place == waiting {
				s.queue.wake(loser)
			}
		}
		pod := e.info.pod
		s.mu.Unlock()
		s.writes.Go(func() {
			stack.Grow()
			defer func() { <-s.slots }()
			s.writeFailure(ctx, pod, d)
		})
		return true
	}
	s.state.nominate(e.info, "")
	placed := *e.info
	placed.node = d.node.name
	s.state.place(&placed)
	s.state.assumed[placed.pod.UID] = true
	pod, node := placed.pod, placed.node
	s.mu.Unlock()
	s.writes.Go(func() {
		stack.Grow()
		if d.volumes != nil {
			<-s.slots // this may take minutes
			if err := s.bindVolumes(ctx, d.volumes); err != nil {
				s.giveBack(ctx, e, pod, err)
				return
			}
			s.slots <- struct{}{}
		}
		defer func() { <-s.slots }()
		s.bind(ctx, e, pod, node)
	})
	return true
}

// bind writes a decision.
func (s *Scheduler) bind(ctx context.Context, e *entry, pod *corev1.Pod, node string) {
	_, err := s.pods.Post(ctx, pod.Namespace, pod.Name, "binding", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
	if err == nil {
		s.config.Log.Debug("pod bound", "pod", pod.Namespace+"/"+pod.Name, "node", node)
		s.event(pod, corev1.EventTypeNormal, "Scheduled", "Successfully assigned "+pod.Namespace+"/"+pod.Name+" to "+node)
		return
	}
	s.giveBack(ctx, e, pod, fmt.Errorf("binding rejected: %w", err))
}

// giveBack undoes a decision that could not be carried out.
func (s *Scheduler) giveBack(ctx context.Context, e *entry, pod *corev1.Pod, err error) {
	s.mu.Lock()
	if s.state.assumed[pod.UID] {
		delete(s.state.assumed, pod.UID)
		s.state.displace(pod.UID)
		if apierrors.IsNotFound(err) {
			s.unqueue(pod.UID)
		} else {
			s.queue.fail(e, nil)
		}
		s.queue.wakeIf(func(*entry) bool { return true })
	}
	s.mu.Unlock()
	s.signal()
	if ctx.Err() == nil && !apierrors.IsNotFound(err) {
		s.writeFailure(ctx, pod, decision{message: err.Error(), reason: corev1.PodReasonSchedulerError})
	}
}

func (s *Scheduler) event(pod *corev1.Pod, kind, reason, message string) {
	if s.config.Events != nil {
		s.config.Events.Event(pod, kind, reason, message)
	}
}

// unqueue forgets a pending pod.
func (s *Scheduler) unqueue(uid types.UID) {
	if e := s.queue.entries[uid]; e != nil {
		s.state.nominate(e.info, "")
		s.queue.remove(uid)
	}
}

// decision about a pod: a node, or why there is none.
type decision struct {
	node            *nodeInfo
	volumes         *volumePlan // to be carried out before binding; may be nil
	reason, message string
	rejectedBy      sets.Set[string]
	// nominated is the node that room is made on, for status.nominatedNodeName.
	nominated string
	evict     *eviction
	outbid    []*podInfo // who were to come to that node before
}
