package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
	"proa/internal/queue"
)

// contentChanged is how long changes of a namespace's content are gathered before its conditions follow.
const contentChanged = time.Second

// namespaces empties namespaces that are being deleted and then lets them go.
type namespaces struct {
	Deps
	queue *queue.Queue[string]
}

func newNamespaces(d Deps) Controller { return &namespaces{Deps: d, queue: queue.New[string]()} }

func (c *namespaces) Run(ctx context.Context) error {
	scopes := []client.Scope{client.For[*corev1.Namespace](c.Client).Scope()}
	for r := range c.contents() {
		scopes = append(scopes, client.Scope{Resource: r})
	}
	terminating := client.For[*corev1.Namespace](c.Client).Lister(ctx)
	return loop(ctx, c.Deps, c.queue, 4, c.sync, func(e client.Event) {
		if ns, ok := e.Object().(*corev1.Namespace); ok {
			if e.New != nil && ns.DeletionTimestamp != nil {
				c.queue.Add(ns.Name)
			}
			return
		}
		ns, ok := terminating.Get("", e.Object().GetNamespace())
		if !ok || ns.DeletionTimestamp == nil {
			return
		}
		if e.New == nil {
			c.queue.Add(ns.Name) // it may have been the last
		} else {
			c.queue.AddAfter(ns.Name, contentChanged)
		}
	}, scopes...)
}

// contents yields the kinds that live in namespaces and can be deleted.
func (c *namespaces) contents() func(yield func(*api.Resource) bool) {
	return func(yield func(*api.Resource) bool) {
		for r := range c.Client.Table().All() {
			if r.Namespaced && !r.Virtual && r.Serves("delete") && r.Serves("list") && !yield(r) {
				return
			}
		}
	}
}

func (c *namespaces) sync(ctx context.Context, name string) (time.Duration, error) {
	access := client.For[*corev1.Namespace](c.Client)
	ns, err := access.Get(ctx, "", name)
	if apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp == nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return 0, nil
	}
	left := c.empty(ctx, name)
	updated := ns.DeepCopy()
	left.conditions(updated)
	if !equality.Semantic.DeepEqual(updated.Status, ns.Status) {
		if ns, err = access.UpdateStatus(ctx, updated); err != nil {
			return 0, ignoreGone(err)
		}
	}
	if len(left.failures) > 0 {
		return 0, fmt.Errorf("empty namespace %s: %s", name, strings.Join(left.failures, "; "))
	}
	if len(left.remaining) > 0 {
		return 0, nil // what is left will be heard of when it goes or changes
	}
	done := ns.DeepCopy()
	done.Spec.Finalizers = slices.DeleteFunc(done.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = c.Client.Update(ctx, access.Kind(), "finalize", done, metav1.UpdateOptions{})
	return 0, ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// leftovers is what still is in a namespace.
type leftovers struct {
	remaining  map[string]int // by resource
	finalizers map[string]int
	failures   []string
}

// empty deletes what is in a namespace and counts what remains.
func (c *namespaces) empty(ctx context.Context, name string) leftovers {
	left := leftovers{remaining: map[string]int{}, finalizers: map[string]int{}}
	for r := range c.contents() {
		objects := slices.Collect(c.Client.Lister(ctx, client.Scope{Resource: r}).All(name))
		for _, obj := range objects {
			if obj.GetDeletionTimestamp() == nil {
				err := c.Client.Delete(ctx, r, name, obj.GetName(), metav1.DeleteOptions{
					PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: ptr.To(obj.GetUID())},
				})
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					left.failures = append(left.failures, fmt.Sprintf("%s %s: %v", r.Key(), obj.GetName(), err))
				}
			}
			now, ok := c.Client.Lister(ctx, client.Scope{Resource: r}).Get(name, obj.GetName())
			if !ok {
				continue
			}
			left.remaining[r.Key()]++
			for _, f := range now.GetFinalizers() {
				left.finalizers[f]++
			}
		}
	}
	return left
}

// conditions says in the namespace's status what holds it up.
func (l leftovers) conditions(ns *corev1.Namespace) {
	set := func(kind corev1.NamespaceConditionType, bad bool, badReason, badText, goodReason, goodText string) {
		cond := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: goodReason, Message: goodText}
		if bad {
			cond.Status, cond.Reason, cond.Message = corev1.ConditionTrue, badReason, badText
		}
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
		if i < 0 {
			cond.LastTransitionTime = metav1.Now()
			ns.Status.Conditions = append(ns.Status.Conditions, cond)
			return
		}
		old := &ns.Status.Conditions[i]
		cond.LastTransitionTime = old.LastTransitionTime
		if old.Status != cond.Status {
			cond.LastTransitionTime = metav1.Now()
		}
		*old = cond
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, false, "", "", "ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "", "", "ParsedGroupVersions", "All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, len(l.failures) > 0, "ContentDeletionFailed", "Failed to delete all resource types, "+fmt.Sprintf("%d remaining: %s", len(l.failures), strings.Join(l.failures, ", ")),
		"ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	set(corev1.NamespaceContentRemaining, len(l.remaining) > 0, "SomeResourcesRemain", "Some resources are remaining: "+list(dotted(l.remaining), "%s has %d resource instances"),
		"ContentRemoved", "All content successfully removed")
	set(corev1.NamespaceFinalizersRemaining, len(l.finalizers) > 0, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+list(l.finalizers, "%s in %d resource instances"),
		"ContentHasNoFinalizers", "All content-preserving finalizers finished")
}

// dotted names resources as upstream's messages do: with a dot at the end when they are of the core group.
func dotted(counts map[string]int) map[string]int {
	out := map[string]int{}
	for name, n := range counts {
		if !strings.Contains(name, ".") {
			name += "."
		}
		out[name] = n
	}
	return out
}

// list writes counts in the order of their names.
func list(counts map[string]int, format string) string {
	var parts []string
	for name, n := range counts {
		parts = append(parts, fmt.Sprintf(format, name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
