package networking

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func at[T any](v T) *T { return &v }

func check(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, string(err.Type)+" "+err.Field)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s%v", diff, errs)
	}
}

func TestNetworkPolicyDefaults(t *testing.T) {
	p := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
		Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: at(intstr.FromInt32(53))}}}}}}
	networkPolicies().Default(p)
	if diff := cmp.Diff([]networkingv1.PolicyType{"Ingress", "Egress"}, p.Spec.PolicyTypes); diff != "" {
		t.Error(diff)
	}
	if got := *p.Spec.Egress[0].Ports[0].Protocol; got != "TCP" {
		t.Errorf("protocol %s", got)
	}
}

func TestNetworkPolicyValidation(t *testing.T) {
	for name, test := range map[string]struct {
		rule networkingv1.NetworkPolicyIngressRule
		want []string
	}{
		"end port below": {networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{Port: at(intstr.FromInt32(80)), EndPort: at[int32](79)}}},
			[]string{"FieldValueInvalid spec.ingress[0].ports[0].endPort"}},
		"end port alone": {networkingv1.NetworkPolicyIngressRule{Ports: []networkingv1.NetworkPolicyPort{{EndPort: at[int32](79)}}},
			[]string{"FieldValueRequired spec.ingress[0].ports[0].port"}},
		"no peer": {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{}}}, []string{"FieldValueRequired spec.ingress[0].from[0]"}},
		"both": {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{
			PodSelector: &metav1.LabelSelector{}, IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}}}, []string{"FieldValueForbidden spec.ingress[0].from[0]"}},
		"except": {networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{
			IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16", "11.0.0.0/16"}}}}},
			[]string{"FieldValueInvalid spec.ingress[0].from[0].ipBlock.except[1]"}},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, networkPolicies().Validate(&networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
				Ingress: []networkingv1.NetworkPolicyIngressRule{test.rule}}}), test.want...)
		})
	}
}

func ingress(change func(*networkingv1.HTTPIngressPath)) *networkingv1.Ingress {
	path := networkingv1.HTTPIngressPath{Path: "/", PathType: at(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
		Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}}
	change(&path)
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{
		Host: "web.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}}}}}}
}

func TestIngressValidation(t *testing.T) {
	const path = " spec.rules[0].http.paths[0]"
	for name, test := range map[string]struct {
		change func(*networkingv1.HTTPIngressPath)
		want   []string
	}{
		"fine":      {func(*networkingv1.HTTPIngressPath) {}, nil},
		"relative":  {func(p *networkingv1.HTTPIngressPath) { p.Path = "foo" }, []string{"FieldValueInvalid" + path + ".path"}},
		"dots":      {func(p *networkingv1.HTTPIngressPath) { p.Path = "/a/../b" }, []string{"FieldValueInvalid" + path + ".path"}},
		"no type":   {func(p *networkingv1.HTTPIngressPath) { p.PathType = nil }, []string{"FieldValueRequired" + path + ".pathType"}},
		"no port":   {func(p *networkingv1.HTTPIngressPath) { p.Backend.Service.Port.Number = 0 }, []string{"FieldValueRequired" + path + ".backend.service"}},
		"two ports": {func(p *networkingv1.HTTPIngressPath) { p.Backend.Service.Port.Name = "http" }, []string{"FieldValueInvalid" + path + ".backend.service"}},
	} {
		t.Run(name, func(t *testing.T) { check(t, ingresses().Validate(ingress(test.change)), test.want...) })
	}
	check(t, ingresses().Validate(&networkingv1.Ingress{}), "FieldValueInvalid spec")
}

func TestServiceCIDRs(t *testing.T) {
	cidr := func(list ...string) *networkingv1.ServiceCIDR {
		return &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: list}}
	}
	for _, test := range []struct {
		list []string
		want []string
	}{
		{[]string{"10.0.0.0/16", "fd00::/112"}, nil},
		{nil, []string{"FieldValueRequired spec.cidrs"}},
		{[]string{"10.0.0.0/16", "10.1.0.0/16"}, []string{"FieldValueInvalid spec.cidrs"}},
		{[]string{"10.0.0.1/16"}, []string{"FieldValueInvalid spec.cidrs[0]"}},
		{[]string{"fd00:0::/112"}, []string{"FieldValueInvalid spec.cidrs[0]"}},
		{[]string{"10.0.0.0/16", "fd00::/112", "fd01::/112"}, []string{"FieldValueInvalid spec.cidrs"}},
	} {
		check(t, serviceCIDRs().Validate(cidr(test.list...)), test.want...)
	}
	check(t, serviceCIDRs().ValidateUpdate(cidr("10.0.0.0/16", "fd00::/112"), cidr("10.0.0.0/16")))
	check(t, serviceCIDRs().ValidateUpdate(cidr("10.1.0.0/16"), cidr("10.0.0.0/16")), "FieldValueInvalid spec.cidrs")
}

func TestIPAddressName(t *testing.T) {
	for name, ok := range map[string]bool{"192.168.1.5": true, "fd00::2": true, "192.168.01.5": false, "fd00:0::2": false, "web": false, "::ffff:1.2.3.4": false} {
		if got := ipAddresses().ValidateName(name, false); (len(got) == 0) != ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestIngressCells(t *testing.T) {
	ing := ingress(func(*networkingv1.HTTPIngressPath) {})
	ing.CreationTimestamp = metav1.NewTime(time.Unix(0, 0))
	ing.Spec.TLS = []networkingv1.IngressTLS{{}}
	ing.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "2.3.4.5"}}
	want := []any{"web", "<none>", "web.example.com", "2.3.4.5", "80, 443", "5m"}
	if diff := cmp.Diff(want, ingresses().Cells(ing, time.Unix(300, 0))); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}
