package admission

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"proa/client"
)

// DefaultIngressClass gives Ingresses that name no class the default one.
type DefaultIngressClass struct {
	Pass
	classes client.TypedLister[*networkingv1.IngressClass]
}

// NewDefaultIngressClass returns the plugin.
func NewDefaultIngressClass(c client.Interface) *DefaultIngressClass {
	return &DefaultIngressClass{classes: client.For[*networkingv1.IngressClass](c).Lister(context.Background())}
}

// Name of the plugin.
func (*DefaultIngressClass) Name() string { return "DefaultIngressClass" }

// Admit sets the class.
func (p *DefaultIngressClass) Admit(_ context.Context, a *Attributes) error {
	if !on(a, "ingresses.networking.k8s.io", "", Create) {
		return nil
	}
	ingress := a.Object.(*networkingv1.Ingress)
	if ingress.Spec.IngressClassName != nil {
		return nil
	}
	if _, ok := ingress.Annotations["kubernetes.io/ingress.class"]; ok {
		return nil
	}
	var found *networkingv1.IngressClass
	for class := range p.classes.All("") {
		if isDefault(class, networkingv1.AnnotationIsDefaultIngressClass) && (found == nil || newer(class, found)) {
			found = class
		}
	}
	if found != nil {
		ingress.Spec.IngressClassName = new(found.Name)
	}
	return nil
}
