package networking

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func ingresses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("Ingress"),
		Plural:           "ingresses",
		Singular:         "ingress",
		ShortNames:       []string{"ing"},
		Namespaced:       true,
		New:              func() api.Object { return new(networkingv1.Ingress) },
		NewList:          func() runtime.Object { return new(networkingv1.IngressList) },
		Subresources:     []api.Subresource{api.Status()},
		HasGeneration:    true,
		Validate: func(obj api.Object) field.ErrorList {
			ing := obj.(*networkingv1.Ingress)
			errs := validateIngressSpec(&ing.Spec, field.NewPath("spec"))
			class, annotated := ing.Annotations[annotationIngressClass]
			if name := ing.Spec.IngressClassName; annotated && name != nil && *name != class {
				errs = append(errs, field.Invalid(field.NewPath("annotations").Child(annotationIngressClass), class,
					"must match `ingressClassName` when both are specified"))
			}
			return errs
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			return validateIngressSpec(&obj.(*networkingv1.Ingress).Spec, field.NewPath("spec"))
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			return validateIngressStatus(obj.(*networkingv1.Ingress).Status.LoadBalancer.Ingress, field.NewPath("status", "loadBalancer", "ingress"))
		},
		Warnings: func(obj, old api.Object) []string {
			if _, ok := obj.GetAnnotations()[annotationIngressClass]; old == nil && ok {
				return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", annotationIngressClass)}
			}
			return nil
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
			api.Text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
			api.Text("Address", "Address is a list containing ingress points for the load-balancer"),
			api.Text("Ports", "Ports of TLS configurations that open"),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			ing := obj.(*networkingv1.Ingress)
			class, ports := "<none>", "80"
			if ing.Spec.IngressClassName != nil {
				class = *ing.Spec.IngressClassName
			}
			if len(ing.Spec.TLS) > 0 {
				ports = "80, 443"
			}
			return []any{ing.Name, class, hostsCell(ing.Spec.Rules), addressCell(ing.Status.LoadBalancer.Ingress), ports, api.Age(ing.CreationTimestamp, now)}
		},
	}
}

const annotationIngressClass = "kubernetes.io/ingress.class"

func hostsCell(list []networkingv1.IngressRule) string {
	const limit = 3
	var hosts []string
	for _, rule := range list {
		if rule.Host != "" {
			hosts = append(hosts, rule.Host)
		}
	}
	switch n := len(hosts); {
	case n == 0:
		return "*"
	case n > limit:
		return fmt.Sprintf("%s + %d more...", strings.Join(hosts[:limit], ","), n-limit)
	}
	return strings.Join(hosts, ",")
}

func addressCell(ingress []networkingv1.IngressLoadBalancerIngress) string {
	var list []string
	for _, i := range ingress {
		if address := cmp.Or(i.IP, i.Hostname); address != "" && !slices.Contains(list, address) {
			list = append(list, address)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
