package networking

import (
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func ipAddresses() *api.Resource {
	return &api.Resource{
		GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("IPAddress"),
		Plural:           "ipaddresses",
		Singular:         "ipaddress",
		ShortNames:       []string{"ip"},
		New:              func() api.Object { return new(networkingv1.IPAddress) },
		NewList:          func() runtime.Object { return new(networkingv1.IPAddressList) },
		Versions: []api.Version{
			api.Twin("v1beta1", func() api.Object { return new(networkingv1.IPAddress) }, func() api.Object { return new(networkingv1beta1.IPAddress) },
				func() runtime.Object { return new(networkingv1beta1.IPAddressList) }),
		},
		ValidateName: validateIPAddressName,
		Validate: func(obj api.Object) field.ErrorList {
			return validateParentRef(obj.(*networkingv1.IPAddress).Spec.ParentRef, field.NewPath("spec", "parentRef"))
		},
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			at := field.NewPath("spec", "parentRef")
			return validation.ValidateImmutableField(obj.(*networkingv1.IPAddress).Spec.ParentRef, old.(*networkingv1.IPAddress).Spec.ParentRef, at)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("ParentRef", rules.Doc(networkingv1.IPAddressSpec{}, "parentRef")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			ip := obj.(*networkingv1.IPAddress)
			parent := "<none>"
			if ref := ip.Spec.ParentRef; ref != nil {
				parent = ref.Resource
				if ref.Group != "" {
					parent += "." + ref.Group
				}
				if ref.Namespace != "" {
					parent += "/" + ref.Namespace
				}
				parent += "/" + ref.Name
			}
			return []any{ip.Name, parent, api.Age(ip.CreationTimestamp, now)}
		},
	}
}

func validateIPAddressName(name string, prefix bool) []string {
	ip, err := netip.ParseAddr(name)
	switch {
	case err != nil || ip.Zone() != "":
		return []string{name + " is not a valid IP address"}
	case ip.String() != name || ip.Is4In6():
		return []string{"must be a canonical format IP address"}
	}
	return nil
}

func validateParentRef(ref *networkingv1.ParentReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if ref.Group != "" {
		for _, msg := range validation.NameIsDNSSubdomain(ref.Group, false) {
			errs = append(errs, field.Invalid(at.Child("group"), ref.Group, msg))
		}
	}
	for _, f := range []struct {
		name, value string
		required    bool
	}{{"resource", ref.Resource, true}, {"name", ref.Name, true}, {"namespace", ref.Namespace, false}} {
		if f.value == "" {
			if f.required {
				errs = append(errs, field.Required(at.Child(f.name), ""))
			}
			continue
		}
		for _, msg := range path.IsValidPathSegmentName(f.value) {
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, msg))
		}
	}
	return errs
}
