package networking

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func serviceCIDRs() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
		Plural:           "servicecidrs",
		Singular:         "servicecidr",
		New:              func() api.Object { return new(networkingv1.ServiceCIDR) },
		NewList:          func() runtime.Object { return new(networkingv1.ServiceCIDRList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(networkingv1.ServiceCIDR) }, func() api.Object { return new(networkingv1beta1.ServiceCIDR) },
				func() runtime.Object { return new(networkingv1beta1.ServiceCIDRList) }),
		},
		Subresources: []api.Subresource{api.Status()},
		Validate: func(obj api.Object) field.ErrorList {
			return validateCIDRs(obj.(*networkingv1.ServiceCIDR).Spec.CIDRs, field.NewPath("spec", "cidrs"))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			cidrs, before, at := obj.(*networkingv1.ServiceCIDR).Spec.CIDRs, old.(*networkingv1.ServiceCIDR).Spec.CIDRs, field.NewPath("spec", "cidrs")
			if len(before) == 1 && len(cidrs) == 2 && cidrs[0] == before[0] {
				// A cluster may become a dual-stack one.
				return validateCIDRs(cidrs, at)
			}
			return validation.ValidateImmutableField(cidrs, before, at)
		},
		ValidateStatusUpdate: func(obj, old api.Object) field.ErrorList {
			return metavalidation.ValidateConditions(obj.(*networkingv1.ServiceCIDR).Status.Conditions, field.NewPath("status", "conditions"))
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("CIDRs", rules.Doc(networkingv1.ServiceCIDRSpec{}, "cidrs")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			cidr := obj.(*networkingv1.ServiceCIDR)
			return []any{cidr.Name, strings.Join(cidr.Spec.CIDRs, ","), api.Age(cidr.CreationTimestamp, now)}
		},
	}
}

func validateCIDRs(cidrs []string, at *field.Path) field.ErrorList {
	if len(cidrs) == 0 {
		return field.ErrorList{field.Required(at, "at least one CIDR required")}
	}
	if len(cidrs) > 2 {
		return field.ErrorList{field.Invalid(at, cidrs, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	var families []bool
	for i, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at.Index(i), cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
			continue
		case prefix.Masked() != prefix:
			errs = append(errs, field.Invalid(at.Index(i), cidr, "must not have bits set beyond the prefix length"))
		case prefix.String() != cidr:
			errs = append(errs, field.Invalid(at.Index(i), cidr, fmt.Sprintf("must be in canonical form (%q)", prefix)))
		}
		families = append(families, prefix.Addr().Is4())
	}
	if len(families) == 2 && families[0] == families[1] {
		errs = append(errs, field.Invalid(at, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}
