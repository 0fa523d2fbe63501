package controllers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa/client"
	"proa/internal/queue"
)

// maxEndpoints is how many addresses an Endpoints object holds; one with more is truncated and marked.
const maxEndpoints = 1000

// endpoints keeps the Endpoints object of every Service with a selector, for clients that do not read EndpointSlices.
type endpoints struct {
	Deps
	queue *queue.Queue[string]
	// left holds the Services that went away, whose Endpoints go with them whoever wrote these.
	left     sync.Map
	services client.TypedLister[*corev1.Service]
	pods     client.TypedLister[*corev1.Pod]
}

func newEndpoints(d Deps) Controller { return &endpoints{Deps: d, queue: queue.New[string]()} }

func (c *endpoints) Run(ctx context.Context) error {
	c.services = client.For[*corev1.Service](c.Client).Lister(ctx)
	c.pods = client.For[*corev1.Pod](c.Client).Lister(ctx)
	note := func(e client.Event) {
		switch obj := e.Object().(type) {
		case *corev1.Service, *corev1.Endpoints:
			if _, ok := e.Old.(*corev1.Service); ok && e.New == nil {
				c.left.Store(obj.GetNamespace()+"/"+obj.GetName(), true)
			}
			c.queue.Add(obj.GetNamespace() + "/" + obj.GetName())
		case *corev1.Pod:
			for _, key := range servicesOfChange(c.services, e) {
				c.queue.Add(key)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note,
		client.For[*corev1.Service](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope(), client.For[*corev1.Endpoints](c.Client).Scope())
}

func (c *endpoints) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	access := client.For[*corev1.Endpoints](c.Client)
	service, ok := c.services.Get(namespace, name)
	old, exists := access.Lister(ctx).Get(namespace, name)
	if !ok {
		// Objects made by hand for no Service are not ours.
		_, left := c.left.Load(key)
		if exists && (left || old.Annotations[corev1.EndpointsLastChangeTriggerTime] != "") {
			if err := access.Delete(ctx, namespace, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return 0, err
			}
		}
		c.left.Delete(key)
		return 0, nil
	}
	c.left.Delete(key)
	if len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName || service.DeletionTimestamp != nil {
		return 0, nil
	}
	subsets, truncated := c.subsets(service)
	set := maps.Clone(service.Labels)
	if set == nil {
		set = map[string]string{}
	}
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		set[corev1.IsHeadlessService] = ""
	} else {
		delete(set, corev1.IsHeadlessService)
	}
	next := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if exists {
		if equality.Semantic.DeepEqual(old.Subsets, subsets) && maps.Equal(old.Labels, set) && (old.Annotations[corev1.EndpointsOverCapacity] == "truncated") == truncated {
			return 0, nil
		}
		next = old.DeepCopy()
	}
	next.Subsets, next.Labels = subsets, set
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[corev1.EndpointsLastChangeTriggerTime] = time.Now().UTC().Format(time.RFC3339)
	delete(next.Annotations, corev1.EndpointsOverCapacity)
	if truncated {
		next.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	var err error
	if exists {
		_, err = access.Update(ctx, next)
	} else {
		_, err = access.Create(ctx, next)
	}
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	return 0, err
}

// subsets groups the pods of a Service by their resolved ports.
func (c *endpoints) subsets(service *corev1.Service) ([]corev1.EndpointSubset, bool) {
	byPorts := map[string]*corev1.EndpointSubset{}
	count := 0
	for pod := range c.pods.Select(service.Namespace, labels.SelectorFromValidatedSet(service.Spec.Selector)) {
		ip, ok := podAddress(pod, families(service)[0])
		if !ok || podEnded(pod) || pod.DeletionTimestamp != nil && !service.Spec.PublishNotReadyAddresses {
			continue
		}
		ports := endpointPorts(service, pod)
		if len(ports) == 0 && len(service.Spec.Ports) > 0 {
			continue
		}
		subset := byPorts[portsKey(ports)]
		if subset == nil {
			subset = &corev1.EndpointSubset{}
			for _, p := range ports {
				subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: *p.Name, Port: *p.Port, Protocol: *p.Protocol, AppProtocol: p.AppProtocol})
			}
			byPorts[portsKey(ports)] = subset
		}
		address := corev1.EndpointAddress{
			IP: ip, NodeName: &pod.Spec.NodeName,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
			address.Hostname = pod.Spec.Hostname
		}
		if count++; count > maxEndpoints {
			return sorted(byPorts), true
		}
		if service.Spec.PublishNotReadyAddresses || podReady(pod) {
			subset.Addresses = append(subset.Addresses, address)
		} else {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, address)
		}
	}
	return sorted(byPorts), false
}

func sorted(byPorts map[string]*corev1.EndpointSubset) []corev1.EndpointSubset {
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		s := byPorts[key]
		byIP := func(a, b corev1.EndpointAddress) int { return cmp.Compare(a.IP, b.IP) }
		slices.SortFunc(s.Addresses, byIP)
		slices.SortFunc(s.NotReadyAddresses, byIP)
		out = append(out, *s)
	}
	return out
}
