package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa/api"
)

func endpoints() *api.Resource {
	return &api.Resource{
		GroupVersionKind: kind("Endpoints"),
		Plural:           "endpoints",
		Singular:         "endpoints",
		ShortNames:       []string{"ep"},
		Namespaced:       true,
		New:              func() api.Object { return new(corev1.Endpoints) },
		NewList:          func() runtime.Object { return new(corev1.EndpointsList) },
		CreateOnUpdate:   true,
		Default: func(obj api.Object) {
			for _, s := range obj.(*corev1.Endpoints).Subsets {
				for i := range s.Ports {
					setDefault(&s.Ports[i].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		Validate: validateEndpoints,
		Columns:  []api.Column{api.NameColumn(), api.Text("Endpoints", corev1.Endpoints{}.SwaggerDoc()["subsets"]), api.AgeColumn()},
		Cells: func(obj api.Object, now time.Time) []any {
			e := obj.(*corev1.Endpoints)
			return []any{e.Name, someEndpoints(e), api.Age(e.CreationTimestamp, now)}
		},
	}
}

func validateEndpoints(obj api.Object) field.ErrorList {
	e := obj.(*corev1.Endpoints)
	var p problems
	for i := range e.Subsets {
		s, at := &e.Subsets[i], field.NewPath("subsets").Index(i)
		if len(s.Addresses) == 0 && len(s.NotReadyAddresses) == 0 {
			p.required(at, "must specify `addresses` or `notReadyAddresses`")
		}
		for j := range s.Addresses {
			p.endpointAddress(&s.Addresses[j], at.Child("addresses").Index(j))
		}
		for j := range s.NotReadyAddresses {
			p.endpointAddress(&s.NotReadyAddresses[j], at.Child("notReadyAddresses").Index(j))
		}
		for j := range s.Ports {
			port, at := &s.Ports[j], at.Child("ports").Index(j)
			if port.Name != "" {
				p.messages(at.Child("name"), port.Name, utilvalidation.IsDNS1123Label(port.Name))
			} else if len(s.Ports) > 1 {
				p.required(at.Child("name"), "")
			}
			p.port(at.Child("port"), port.Port)
			exactlyOneOf(&p, at.Child("protocol"), port.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
			if port.AppProtocol != nil {
				p.qualified(at.Child("appProtocol"), *port.AppProtocol)
			}
		}
	}
	return p.list
}

func (p *problems) endpointAddress(a *corev1.EndpointAddress, path *field.Path) {
	if errs := utilvalidation.IsValidIPForLegacyField(path.Child("ip"), a.IP, false, nil); len(errs) > 0 {
		p.all(errs)
	} else {
		p.ordinaryIP(path.Child("ip"), a.IP)
	}
	if a.Hostname != "" {
		p.messages(path.Child("hostname"), a.Hostname, utilvalidation.IsDNS1123Label(a.Hostname))
	}
	if a.NodeName != nil {
		p.messages(path.Child("nodeName"), *a.NodeName, utilvalidation.IsDNS1123Subdomain(*a.NodeName))
	}
}

// someEndpoints names the first three addresses with their ports, and says how many more there are.
func someEndpoints(e *corev1.Endpoints) string {
	const shown = 3
	var list []string
	for _, s := range e.Subsets {
		for _, port := range s.Ports {
			for _, a := range s.Addresses {
				list = append(list, hostPort(a.IP, port.Port))
			}
		}
		if len(s.Ports) == 0 {
			for _, a := range s.Addresses {
				list = append(list, a.IP)
			}
		}
	}
	if n := len(list); n > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(list[:shown], ","), n-shown)
	}
	return orNone(strings.Join(list, ","))
}
