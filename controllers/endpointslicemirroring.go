package controllers

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"proa/client"
	"proa/internal/queue"
)

// sliceMirrorManager marks the slices of this controller.
const sliceMirrorManager = "endpointslicemirroring-controller.k8s.io"

// leaderAnnotation marks Endpoints that are a lock and no addresses.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// sliceMirror copies Endpoints that users keep for Services without a selector into EndpointSlices, which is what traffic
// follows.
type sliceMirror struct {
	*endpointSlices
	queue *queue.Queue[string]
}

func newSliceMirror(d Deps) Controller {
	return &sliceMirror{endpointSlices: &endpointSlices{Deps: d}, queue: queue.New[string]()}
}

func (c *sliceMirror) Run(ctx context.Context) error {
	c.slices = client.For[*discoveryv1.EndpointSlice](c.Client).Lister(ctx)
	note := func(e client.Event) {
		obj := e.Object()
		name := obj.GetName()
		if s, ok := obj.(*discoveryv1.EndpointSlice); ok {
			if name = s.Labels[discoveryv1.LabelServiceName]; name == "" || s.Labels[discoveryv1.LabelManagedBy] != sliceMirrorManager {
				return
			}
		}
		c.queue.Add(obj.GetNamespace() + "/" + name)
	}
	return loop(ctx, c.Deps, c.queue, 5, c.sync, note, client.For[*corev1.Endpoints](c.Client).Scope(),
		client.For[*corev1.Service](c.Client).Scope(), client.For[*discoveryv1.EndpointSlice](c.Client).Scope())
}

func (c *sliceMirror) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := splitKey(key)
	access := client.For[*discoveryv1.EndpointSlice](c.Client)
	spare := slices.Collect(c.slices.Select(namespace, labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: sliceMirrorManager})))
	source, ok := client.For[*corev1.Endpoints](c.Client).Lister(ctx).Get(namespace, name)
	service, served := client.For[*corev1.Service](c.Client).Lister(ctx).Get(namespace, name)
	var wanted []*discoveryv1.EndpointSlice
	if ok && served && source.DeletionTimestamp == nil && len(service.Spec.Selector) == 0 &&
		source.Labels[discoveryv1.LabelSkipMirror] != "true" && source.Annotations[leaderAnnotation] == "" {
		wanted = mirrored(service, source)
	}
	for _, w := range wanted {
		i := slices.IndexFunc(spare, func(s *discoveryv1.EndpointSlice) bool {
			return s.DeletionTimestamp == nil && s.AddressType == w.AddressType && samePorts(s.Ports, w.Ports)
		})
		if i < 0 {
			i = slices.IndexFunc(spare, func(s *discoveryv1.EndpointSlice) bool {
				return s.DeletionTimestamp == nil && s.AddressType == w.AddressType
			})
		}
		if i >= 0 {
			if err := c.update(ctx, spare[i], w); err != nil {
				return 0, err
			}
			spare = slices.Delete(spare, i, i+1)
			continue
		}
		if _, err := access.Create(ctx, w); apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil
		} else if err != nil {
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

// mirrored computes the slices of Endpoints: one per subset and address family, and at most so many addresses as
// Endpoints may have.
func mirrored(service *corev1.Service, source *corev1.Endpoints) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, subset := range source.Subsets {
		var ports []discoveryv1.EndpointPort
		for _, p := range subset.Ports {
			ports = append(ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(p.Protocol), AppProtocol: p.AppProtocol})
		}
		byFamily := map[corev1.IPFamily][]discoveryv1.Endpoint{}
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				ip, err := netip.ParseAddr(a.IP)
				family := corev1.IPv4Protocol
				if ip.Is6() {
					family = corev1.IPv6Protocol
				}
				if err != nil || len(byFamily[family]) == maxEndpoints {
					continue
				}
				e := discoveryv1.Endpoint{Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: a.NodeName, TargetRef: a.TargetRef}
				if a.Hostname != "" {
					e.Hostname = ptr.To(a.Hostname)
				}
				byFamily[family] = append(byFamily[family], e)
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
		for _, family := range slices.Sorted(maps.Keys(byFamily)) {
			s := newSlice(service, family, ports, byFamily[family])
			s.Labels = map[string]string{}
			maps.Copy(s.Labels, source.Labels)
			s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = service.Name, sliceMirrorManager
			ref := &s.OwnerReferences[0]
			ref.Kind, ref.Name, ref.UID = "Endpoints", source.Name, source.UID
			out = append(out, s)
		}
	}
	return out
}
