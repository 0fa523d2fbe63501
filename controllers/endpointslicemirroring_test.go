package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "endpointslice-mirroring-controller")
		state := func() string {
			list, err := client.For[*discoveryv1.EndpointSlice](c).List(context.Background(), "ns", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, s := range list {
				line := fmt.Sprintf("%s %s %d:", s.OwnerReferences[0].Kind, s.AddressType, *s.Ports[0].Port)
				for _, e := range s.Endpoints {
					line += fmt.Sprintf(" %s=%v", e.Addresses[0], *e.Conditions.Ready)
				}
				out = append(out, line)
			}
			slices.Sort(out)
			return strings.Join(out, "; ")
		}
		service := webService()
		service.Spec.Selector = nil
		source := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Subsets: []corev1.EndpointSubset{{
			Addresses:         []corev1.EndpointAddress{{IP: "10.2.0.1"}, {IP: "fd00::1"}},
			NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.2.0.2"}},
			Ports:             []corev1.EndpointPort{{Name: "h", Port: 80, Protocol: corev1.ProtocolTCP}},
		}}}
		put := func(change func(*corev1.Service, *corev1.Endpoints)) func() {
			return func() {
				s, e := service.DeepCopy(), source.DeepCopy()
				change(s, e)
				c.Put(s)
				c.Put(e)
			}
		}
		both := "Endpoints IPv4 80: 10.2.0.1=true 10.2.0.2=false; Endpoints IPv6 80: fd00::1=true"
		for _, step := range []struct {
			name string
			do   func()
			want string
		}{
			{"no Service", func() { c.Put(source) }, ""},
			{"Service", put(func(*corev1.Service, *corev1.Endpoints) {}), both},
			{"changed", put(func(_ *corev1.Service, e *corev1.Endpoints) {
				e.Subsets[0].Addresses, e.Subsets[0].Ports[0].Port = e.Subsets[0].Addresses[:1], 81
			}), "Endpoints IPv4 81: 10.2.0.1=true 10.2.0.2=false"},
			{"not wanted", put(func(_ *corev1.Service, e *corev1.Endpoints) {
				e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
			}), ""},
			{"wanted again", put(func(*corev1.Service, *corev1.Endpoints) {}), both},
			{"selector", put(func(s *corev1.Service, _ *corev1.Endpoints) { s.Spec.Selector = map[string]string{"a": "b"} }), ""},
			{"no selector again", put(func(*corev1.Service, *corev1.Endpoints) {}), both},
			{"gone", func() { c.Remove(source) }, ""},
		} {
			step.do()
			c.settle()
			if got := state(); got != step.want {
				t.Errorf("%s: %q, want %q", step.name, got, step.want)
			}
		}
	})
}
