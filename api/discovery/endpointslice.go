package discovery

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
	"proa/api/rules"
)

func endpointSlices() *api.Resource {
	return &api.Resource{
		GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		Plural:           "endpointslices",
		Singular:         "endpointslice",
		Namespaced:       true,
		New:              func() api.Object { return new(discoveryv1.EndpointSlice) },
		NewList:          func() runtime.Object { return new(discoveryv1.EndpointSliceList) },
		HasGeneration:    true,
		Default: func(obj api.Object) {
			ports := obj.(*discoveryv1.EndpointSlice).Ports
			for i := range ports {
				rules.SetDefault(&ports[i].Name, "")
				rules.SetDefault(&ports[i].Protocol, corev1.ProtocolTCP)
			}
		},
		Validate: func(obj api.Object) field.ErrorList { return validateEndpointSlice(obj.(*discoveryv1.EndpointSlice)) },
		ValidateUpdate: func(obj, old api.Object) field.ErrorList {
			slice := obj.(*discoveryv1.EndpointSlice)
			errs := validation.ValidateImmutableField(slice.AddressType, old.(*discoveryv1.EndpointSlice).AddressType, field.NewPath("addressType"))
			return append(validateEndpointSlice(slice), errs...)
		},
		Columns: []api.Column{
			api.NameColumn(),
			api.Text("AddressType", rules.Doc(discoveryv1.EndpointSlice{}, "addressType")),
			api.Text("Ports", rules.Doc(discoveryv1.EndpointSlice{}, "ports")),
			api.Text("Endpoints", rules.Doc(discoveryv1.EndpointSlice{}, "endpoints")),
			api.AgeColumn(),
		},
		Cells: func(obj api.Object, now time.Time) []any {
			slice := obj.(*discoveryv1.EndpointSlice)
			return []any{slice.Name, string(slice.AddressType), portsCell(slice.Ports), addressesCell(slice.Endpoints), api.Age(slice.CreationTimestamp, now)}
		},
	}
}

func portsCell(ports []discoveryv1.EndpointPort) string {
	var list []string
	for _, p := range ports {
		switch {
		case p.Port != nil:
			list = append(list, strconv.Itoa(int(*p.Port)))
		case p.Name != nil && *p.Name != "":
			list = append(list, *p.Name)
		default:
			list = append(list, "*")
		}
	}
	return shorten(list)
}

func addressesCell(endpoints []discoveryv1.Endpoint) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, e.Addresses...)
	}
	return shorten(list)
}

// shorten joins the first three of list and counts the rest.
func shorten(list []string) string {
	const limit = 3
	switch n := len(list); {
	case n == 0:
		return "<unset>"
	case n > limit:
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:limit], ","), n-limit)
	}
	return strings.Join(list, ",")
}
