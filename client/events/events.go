// Package events records what happens to objects as core/v1 Events, the way users know them from kubectl describe: one
// object per distinct event, counted when it repeats, written in the background so that recording never waits.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa/api"
	"proa/client"
)

// Limits: a full backlog drops events, the memory of repeated events is forgotten oldest first.
const (
	backlog  = 4096
	remember = 4096
)

// Recorder writes events of one component. Its methods never block; safe for concurrent use.
type Recorder struct {
	client    client.Interface
	log       *slog.Logger
	component string
	host      string
	queue     chan *event
}

type event struct {
	ref             corev1.ObjectReference
	kind            string
	reason, message string
	at              time.Time
}

// New returns a recorder for a component ("kubelet", "default-scheduler"); host may be empty. Events are written while
// Run is running.
func New(c client.Interface, log *slog.Logger, component, host string) *Recorder {
	return &Recorder{client: c, log: log, component: component, host: host, queue: make(chan *event, backlog)}
}

// Event records that something happened to obj. kind is corev1.EventTypeNormal or EventTypeWarning.
func (r *Recorder) Event(obj api.Object, kind, reason, message string) {
	r.Record(Reference(r.client.Table(), obj), kind, reason, message)
}

// Eventf is Event with a format.
func (r *Recorder) Eventf(obj api.Object, kind, reason, format string, args ...any) {
	r.Event(obj, kind, reason, fmt.Sprintf(format, args...))
}

// Record is Event for a reference, which may name a part of the object in FieldPath.
func (r *Recorder) Record(ref corev1.ObjectReference, kind, reason, message string) {
	if r == nil {
		return
	}
	if len(message) > 1024 {
		message = message[:1021] + "..."
	}
	select {
	case r.queue <- &event{ref, kind, reason, message, time.Now()}:
	default: // the backlog is full: events are best effort
	}
}

// Reference to obj for use in an event.
func Reference(t *api.Table, obj api.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
	gvk := obj.GetObjectKind().GroupVersionKind()
	if gvk == (schema.GroupVersionKind{}) {
		gvk = t.KindOf(obj)
	}
	ref.APIVersion, ref.Kind = gvk.ToAPIVersionAndKind()
	return ref
}

type identity struct {
	uid             types.UID
	namespace, name string
	path            string
	kind            string
	reason, message string
}

// Run writes the recorded events until ctx ends, and then for a short while what is left.
func (r *Recorder) Run(ctx context.Context) error {
	w := &writer{Recorder: r, seen: map[identity]*corev1.Event{}}
	for {
		select {
		case e := <-r.queue:
			w.write(ctx, e)
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			for flush.Err() == nil {
				select {
				case e := <-r.queue:
					w.write(flush, e)
				default:
					return nil
				}
			}
			return nil
		}
	}
}

type writer struct {
	*Recorder
	seen  map[identity]*corev1.Event
	order []identity
	// stamp makes the names of events unique, also where the clock is coarse.
	stamp int64
}

func (w *writer) write(ctx context.Context, e *event) {
	events := client.For[*corev1.Event](w.client)
	id := identity{e.ref.UID, e.ref.Namespace, e.ref.Name, e.ref.FieldPath, e.kind, e.reason, e.message}
	if old := w.seen[id]; old != nil {
		next := old.DeepCopy()
		next.Count++
		next.LastTimestamp = metav1.NewTime(e.at)
		next.ResourceVersion = ""
		done, err := events.Update(ctx, next)
		if err == nil {
			w.seen[id] = done
			return
		}
		if !errors.IsNotFound(err) {
			w.log.Debug("event not counted", "err", err)
			return
		}
	}
	w.stamp = max(w.stamp+1, e.at.UnixNano())
	namespace := e.ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	done, err := events.Create(ctx, &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", e.ref.Name, w.stamp), Namespace: namespace},
		InvolvedObject:      e.ref,
		Reason:              e.reason,
		Message:             e.message,
		Type:                e.kind,
		Count:               1,
		FirstTimestamp:      metav1.NewTime(e.at),
		LastTimestamp:       metav1.NewTime(e.at),
		Source:              corev1.EventSource{Component: w.component, Host: w.host},
		ReportingController: w.component,
		ReportingInstance:   w.host,
	})
	if err != nil {
		w.log.Debug("event not written", "reason", e.reason, "err", err)
		return
	}
	if w.seen[id] == nil {
		w.order = append(w.order, id)
	}
	w.seen[id] = done
	if len(w.order) > remember {
		delete(w.seen, w.order[0])
		w.order = w.order[1:]
	}
}
