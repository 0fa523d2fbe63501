package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// endpointsPerSlice is how many endpoints one EndpointSlice holds.
const endpointsPerSlice = 100

// endpointSliceManager marks the slices of this controller.
const endpointSliceManager = "endpointslice-controller.k8s.io"

// endpointSlices keeps the EndpointSlices of every Service with a selector.
type endpointSlices struct {
	Deps
	queue    *queue.Queue[string] // namespace/name of Services
	services client.TypedLister[*corev1.Service]
	pods     client.TypedLister[*corev1.Pod]
	nodes    client.TypedLister[*corev1.Node]
	slices   client.TypedLister[*discoveryv1.EndpointSlice]
}

func newEndpointSlices(d Deps) Controller {
	return &endpointSlices{Deps: d, queue: queue.New[string]()}
}

func (c *endpointSlices) Run(ctx context.Context) error {
	c.services = client.For[*corev1.Service](c.Client).Lister(ctx)
	c.pods = client.For[*corev1.Pod](c.Client).Lister(ctx)
	c.nodes = client.For[*corev1.Node](c.Client).Lister(ctx)
	c.slices = client.For[*discoveryv1.EndpointSlice](c.Client).Lister(ctx)
	note := func(e client.Event) {
		switch obj := e.Object().(type) {
		case *corev1.Service:
			c.queue.Add(obj.Namespace + "/" + obj.Name)
		case *corev1.Pod:
			for _, key := range servicesOfChange(c.services, e) {
				c.queue.Add(key)
			}
		case *discoveryv1.EndpointSlice:
			if name := obj.Labels[discoveryv1.LabelServiceName]; name != "" && obj.Labels[discoveryv1.LabelManagedBy] == endpointSliceManager {
				c.queue.Add(obj.Namespace + "/" + name)
			}
		}
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note,
		client.For[*corev1.Service](c.Client).Scope(), client.For[*corev1.Pod](c.Client).Scope(), client.For[*discoveryv1.EndpointSlice](c.Client).Scope())
}

// servicesOfChange are the Services whose endpoints a change of a pod may touch.
func servicesOfChange(services client.TypedLister[*corev1.Service], e client.Event) []string {
	before, _ := e.Old.(*corev1.Pod)
	after, _ := e.New.(*corev1.Pod)
	if before != nil && after != nil && !endpointChanged(before, after) {
		return nil
	}
	var keys []string
	for s := range services.All(e.Object().GetNamespace()) {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromValidatedSet(s.Spec.Selector)
		if before != nil && selector.Matches(labels.Set(before.Labels)) || after != nil && selector.Matches(labels.Set(after.Labels)) {
			keys = append(keys, s.Namespace+"/"+s.Name)
		}
	}
	return keys
}

func endpointChanged(a, b *corev1.Pod) bool {
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || a.Status.Phase != b.Status.Phase || podReady(a) != podReady(b) ||
		(a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) || !maps.Equal(a.Labels, b.Labels) || !slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}

// podReady reports the pod's Ready condition.
func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podEnded reports whether the pod's containers will not run again.
func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (c *endpointSlices) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	access := client.For[*discoveryv1.EndpointSlice](c.Client)
	var present []*discoveryv1.EndpointSlice
	for s := range c.slices.Select(namespace, labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: endpointSliceManager})) {
		if s.DeletionTimestamp == nil {
			present = append(present, s)
		}
	}
	service, ok := c.services.Get(namespace, name)
	if !ok || service.DeletionTimestamp != nil || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		if ok && len(service.Spec.Selector) > 0 && service.DeletionTimestamp != nil {
			return 0, nil
		}
		for _, s := range present {
			if err := access.Delete(ctx, namespace, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return 0, err
			}
		}
		return 0, nil
	}
	wanted := c.wanted(service)
	// Slices with the wanted ports go on; then those with other ports are reused, so that there is no moment without any.
	spare := present
	for _, anyPorts := range []bool{false, true} {
		var rest []*discoveryv1.EndpointSlice
		for _, s := range spare {
			i := slices.IndexFunc(wanted, func(w *discoveryv1.EndpointSlice) bool {
				return w.Name == "" && w.AddressType == s.AddressType && (anyPorts || samePorts(w.Ports, s.Ports))
			})
			if i < 0 {
				rest = append(rest, s)
				continue
			}
			wanted[i].Name = s.Name // taken
			if err := c.update(ctx, s, wanted[i]); err != nil {
				return 0, err
			}
		}
		spare = rest
	}
	for _, w := range wanted {
		if w.Name != "" {
			continue
		}
		if _, err := access.Create(ctx, w); err != nil {
			if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return 0, nil
			}
			c.Events.Eventf(service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices", "Error updating Endpoint Slices for Service %s/%s: %v", namespace, name, err)
			return 0, err
		}
	}
	for _, s := range spare {
		if err := access.Delete(ctx, namespace, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
	}
	return 0, nil
}

// update gives a slice the wanted content, if it has another.
func (c *endpointSlices) update(ctx context.Context, s, wanted *discoveryv1.EndpointSlice) error {
	next := s.DeepCopy()
	next.Endpoints, next.Ports = wanted.Endpoints, wanted.Ports
	next.Labels, next.OwnerReferences = wanted.Labels, wanted.OwnerReferences
	if sameEndpoints(next.Endpoints, s.Endpoints) && equality.Semantic.DeepEqual(next.Ports, s.Ports) &&
		maps.Equal(next.Labels, s.Labels) && equality.Semantic.DeepEqual(next.OwnerReferences, s.OwnerReferences) {
		return nil
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[corev1.EndpointsLastChangeTriggerTime] = wanted.Annotations[corev1.EndpointsLastChangeTriggerTime]
	_, err := client.For[*discoveryv1.EndpointSlice](c.Client).Update(ctx, next)
	return ignoreGone(err)
}

func samePorts(a, b []discoveryv1.EndpointPort) bool { return portsKey(a) == portsKey(b) }

// portsKey tells port lists apart.
func portsKey(ports []discoveryv1.EndpointPort) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%s/%s/%d/%s", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), ptr.Deref(p.Port, 0), ptr.Deref(p.AppProtocol, "")))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// sameEndpoints compares endpoints whatever their order.
func sameEndpoints(a, b []discoveryv1.Endpoint) bool {
	if len(a) != len(b) {
		return false
	}
	byAddress := func(x, y discoveryv1.Endpoint) int { return slices.Compare(x.Addresses, y.Addresses) }
	a, b = slices.SortedFunc(slices.Values(a), byAddress), slices.SortedFunc(slices.Values(b), byAddress)
	return equality.Semantic.DeepEqual(a, b)
}

// wanted computes the slices of a Service: per address family and per set of resolved ports, in portions.
func (c *endpointSlices) wanted(service *corev1.Service) []*discoveryv1.EndpointSlice {
	type group struct {
		ports     []discoveryv1.EndpointPort
		endpoints []discoveryv1.Endpoint
	}
	var out []*discoveryv1.EndpointSlice
	for _, family := range families(service) {
		groups := map[string]*group{}
		for pod := range c.pods.Select(service.Namespace, labels.SelectorFromValidatedSet(service.Spec.Selector)) {
			address, ok := podAddress(pod, family)
			if !ok || podEnded(pod) || pod.Spec.NodeName == "" {
				continue
			}
			ports := endpointPorts(service, pod)
			g := groups[portsKey(ports)]
			if g == nil {
				g = &group{ports: ports}
				groups[portsKey(ports)] = g
			}
			g.endpoints = append(g.endpoints, c.endpoint(service, pod, address))
		}
		if len(groups) == 0 {
			// A Service without endpoints has one empty slice, which tells it from one not looked at yet.
			groups[""] = &group{}
		}
		for _, key := range slices.Sorted(maps.Keys(groups)) {
			g := groups[key]
			slices.SortFunc(g.endpoints, func(a, b discoveryv1.Endpoint) int { return cmp.Compare(a.Addresses[0], b.Addresses[0]) })
			if service.Spec.TrafficDistribution != nil && *service.Spec.TrafficDistribution == corev1.ServiceTrafficDistributionPreferClose {
				for i, e := range g.endpoints {
					if e.Zone != nil && ptr.Deref(e.Conditions.Ready, false) {
						g.endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *e.Zone}}}
					}
				}
			}
			for portion := range slices.Chunk(append(g.endpoints, discoveryv1.Endpoint{}), endpointsPerSlice) {
				portion = slices.DeleteFunc(slices.Clone(portion), func(e discoveryv1.Endpoint) bool { return len(e.Addresses) == 0 })
				if len(portion) == 0 && len(g.endpoints) > 0 {
					continue
				}
				out = append(out, newSlice(service, family, g.ports, portion))
			}
		}
	}
	return out
}

func families(service *corev1.Service) []corev1.IPFamily {
	if len(service.Spec.IPFamilies) > 0 {
		return service.Spec.IPFamilies
	}
	return []corev1.IPFamily{corev1.IPv4Protocol}
}

// podAddress is the pod's address of a family.
func podAddress(pod *corev1.Pod, family corev1.IPFamily) (string, bool) {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is4() == (family == corev1.IPv4Protocol) {
			return ip.IP, true
		}
	}
	return "", false
}

// endpointPorts resolves a Service's target ports for a pod; names that the pod does not have are left out.
func endpointPorts(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	var out []discoveryv1.EndpointPort
	for _, p := range service.Spec.Ports {
		n, ok := targetPort(p, pod)
		if !ok {
			continue
		}
		out = append(out, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(n), Protocol: ptr.To(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return out
}

// targetPort is the port of a pod to which a Service port leads.
func targetPort(p corev1.ServicePort, pod *corev1.Pod) (int32, bool) {
	if p.TargetPort.Type == intstr.Int {
		return cmp.Or(p.TargetPort.IntVal, p.Port), true
	}
	for _, c := range slices.Concat(pod.Spec.Containers, sidecars(pod)) {
		for _, cp := range c.Ports {
			if cp.Name == p.TargetPort.StrVal && cmp.Or(cp.Protocol, corev1.ProtocolTCP) == p.Protocol {
				return cp.ContainerPort, true
			}
		}
	}
	return 0, false
}

// sidecars are the init containers that run as long as the pod.
func sidecars(pod *corev1.Pod) []corev1.Container {
	return slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool { return c.RestartPolicy == nil })
}

func (c *endpointSlices) endpoint(service *corev1.Service, pod *corev1.Pod, address string) discoveryv1.Endpoint {
	serving := podReady(pod)
	terminating := pod.DeletionTimestamp != nil
	ready := service.Spec.PublishNotReadyAddresses || serving && !terminating
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating},
		NodeName:   ptr.To(pod.Spec.NodeName),
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
	if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
		e.Hostname = ptr.To(pod.Spec.Hostname)
	}
	if node, ok := c.nodes.Get("", pod.Spec.NodeName); ok {
		if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" {
			e.Zone = &zone
		}
	}
	return e
}

func newSlice(service *corev1.Service, family corev1.IPFamily, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	set := map[string]string{}
	for k, v := range service.Labels {
		if k != discoveryv1.LabelServiceName && k != discoveryv1.LabelManagedBy && k != corev1.IsHeadlessService {
			set[k] = v
		}
	}
	set[discoveryv1.LabelServiceName] = service.Name
	set[discoveryv1.LabelManagedBy] = endpointSliceManager
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		set[corev1.IsHeadlessService] = ""
	}
	if endpoints == nil {
		endpoints = []discoveryv1.Endpoint{}
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: service.Name + "-", Namespace: service.Namespace, Labels: set,
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().UTC().Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		AddressType: discoveryv1.AddressType(family),
		Endpoints:   endpoints,
		Ports:       ports,
	}
}
