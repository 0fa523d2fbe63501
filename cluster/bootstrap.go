package cluster

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa/api"
	"proa/client"
)

// bootstrap makes the objects that every cluster has from its first moment: the system namespaces, the system priority
// classes, the kubernetes Service with its endpoints, and the DNS Service. It is safe to repeat.
func bootstrap(ctx context.Context, c client.Interface, config Config, ca []byte) error {
	var objects []api.Object
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	objects = append(objects,
		priorityClass("system-node-critical", 2000001000, "Used for system critical pods that must not be moved from their current node."),
		priorityClass("system-cluster-critical", 2000000000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
		kubernetesService(config),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "extension-apiserver-authentication", Namespace: metav1.NamespaceSystem},
			Data:       map[string]string{"client-ca-file": string(ca)},
		},
	)
	if !config.NoNode {
		objects = append(objects, dnsService(config), nodeProxier())
	}
	for _, obj := range objects {
		if err := ensure(ctx, c, obj); err != nil {
			return err
		}
	}
	return publishAPIServer(ctx, c, config)
}

// nodeProxier lets nodes read Services: each runs its service proxy itself, with its own certificate.
func nodeProxier() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "proa:node-proxier"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}
}

// ensure creates obj unless it exists.
func ensure(ctx context.Context, c client.Interface, obj api.Object) error {
	r := c.Table().ForKind(c.Table().KindOf(obj).GroupKind())
	if _, err := c.Get(ctx, r, obj.GetNamespace(), obj.GetName()); !errors.IsNotFound(err) {
		return err
	}
	_, err := c.Create(ctx, r, obj, metav1.CreateOptions{})
	if err != nil && !errors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s: %w", r.Key(), obj.GetName(), err)
	}
	return nil
}

func priorityClass(name string, value int32, description string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description,
	}
}

func kubernetesService(config Config) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: nth(config.ServiceCIDR, 1).String(),
			Ports:     []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(int32(config.Port))}},
		},
	}
}

func dnsService(config Config) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-dns", Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterDNS(config).String(),
			Ports: []corev1.ServicePort{
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(dnsPort)},
				{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(dnsPort)},
			},
		},
	}
}

// dnsPort is where each node's DNS listens; the DNS Service leads to it.
const dnsPort = 10053

// clusterDNS is the address of the DNS Service, by custom the tenth of the range.
func clusterDNS(config Config) netip.Addr { return nth(config.ServiceCIDR, 10) }

// publishAPIServer lets the kubernetes Service, and the DNS Service when there are nodes, lead to this server.
func publishAPIServer(ctx context.Context, c client.Interface, config Config) error {
	address := config.NodeAddress.String()
	if err := publish(ctx, c, metav1.NamespaceDefault, "kubernetes", address,
		[]corev1.EndpointPort{{Name: "https", Port: int32(config.Port), Protocol: corev1.ProtocolTCP}}); err != nil {
		return err
	}
	if config.NoNode {
		return nil
	}
	return publish(ctx, c, metav1.NamespaceSystem, "kube-dns", address, []corev1.EndpointPort{
		{Name: "dns", Port: dnsPort, Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", Port: dnsPort, Protocol: corev1.ProtocolTCP},
	})
}

// publish writes the Endpoints and the EndpointSlice of a Service without a selector.
func publish(ctx context.Context, c client.Interface, namespace, name, address string, ports []corev1.EndpointPort) error {
	endpoints := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: address}}, Ports: ports}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(p.Protocol)})
	}
	if err := put(ctx, client.For[*corev1.Endpoints](c), endpoints, func(old *corev1.Endpoints) bool {
		same := equality.Semantic.DeepEqual(old.Subsets, endpoints.Subsets)
		endpoints.ResourceVersion = old.ResourceVersion
		return same
	}); err != nil {
		return err
	}
	return put(ctx, client.For[*discoveryv1.EndpointSlice](c), slice, func(old *discoveryv1.EndpointSlice) bool {
		same := equality.Semantic.DeepEqual(old.Endpoints, slice.Endpoints) && equality.Semantic.DeepEqual(old.Ports, slice.Ports)
		slice.ResourceVersion = old.ResourceVersion
		return same
	})
}

// put creates obj, or updates it unless same says that the existing one is as wanted.
func put[T api.Object](ctx context.Context, c client.Resource[T], obj T, same func(old T) bool) error {
	old, err := c.Get(ctx, obj.GetNamespace(), obj.GetName())
	switch {
	case errors.IsNotFound(err):
		_, err = c.Create(ctx, obj)
	case err == nil && !same(old):
		_, err = c.Update(ctx, obj)
	}
	return err
}
