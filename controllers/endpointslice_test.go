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
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"proa/client"
)

// servicePod is a pod on a node with an address; state is any of ready, deleting, ended.
func servicePod(name, ip string, port int32, state string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "node", Hostname: name, Subdomain: "web", Containers: []corev1.Container{{
			Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
	}
	if strings.Contains(state, "ready") {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if strings.Contains(state, "ended") {
		p.Status.Phase = corev1.PodSucceeded
	}
	if strings.Contains(state, "deleting") {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = ptr.To(metav1.Now()), ptr.To[int64](30), []string{"example.com/hold"}
	}
	return p
}

func webService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, ClusterIP: "10.0.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports: []corev1.ServicePort{{Name: "h", Port: 80, TargetPort: intstr.FromString("http"), Protocol: corev1.ProtocolTCP}},
	}}
}

// endpointSlices writes every slice as "ports: address+conditions ...".
func (c *cluster) endpointSlices() string {
	list, err := client.For[*discoveryv1.EndpointSlice](c).List(context.Background(), "ns", metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		line := ""
		for _, p := range s.Ports {
			line += fmt.Sprintf("%s=%d", *p.Name, *p.Port)
		}
		line += ":"
		for _, e := range s.Endpoints {
			line += " " + e.Addresses[0]
			for _, cond := range []struct {
				name string
				is   *bool
			}{{"+ready", e.Conditions.Ready}, {"+serving", e.Conditions.Serving}, {"+terminating", e.Conditions.Terminating}} {
				if *cond.is {
					line += cond.name
				}
			}
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// endpointSubsets writes the Endpoints of web as "ports: ready addresses - unready addresses".
func (c *cluster) endpointSubsets() string {
	e, err := client.For[*corev1.Endpoints](c).Get(context.Background(), "ns", "web")
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, s := range e.Subsets {
		line := ""
		for _, p := range s.Ports {
			line += fmt.Sprintf("%s=%d", p.Name, p.Port)
		}
		line += ":"
		for _, a := range s.Addresses {
			line += " " + a.IP
		}
		for _, a := range s.NotReadyAddresses {
			line += " -" + a.IP
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}

func TestEndpoints(t *testing.T) {
	pods := []*corev1.Pod{
		servicePod("a", "10.1.0.1", 8080, "ready"), servicePod("b", "10.1.0.2", 8080, ""), servicePod("c", "10.1.0.3", 8080, "ready deleting"),
		servicePod("d", "10.1.0.4", 8080, "ended"), servicePod("e", "10.1.0.5", 9090, "ready"),
	}
	for _, test := range []struct {
		name            string
		change          func(*corev1.Service)
		slices, subsets string
	}{
		{
			"named port", func(*corev1.Service) {},
			"h=8080: 10.1.0.1+ready+serving 10.1.0.2 10.1.0.3+serving+terminating; h=9090: 10.1.0.5+ready+serving",
			"h=8080: 10.1.0.1 -10.1.0.2; h=9090: 10.1.0.5",
		},
		{
			"number", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
			"h=1: 10.1.0.1+ready+serving 10.1.0.2 10.1.0.3+serving+terminating 10.1.0.5+ready+serving", "h=1: 10.1.0.1 10.1.0.5 -10.1.0.2",
		},
		{
			"published though not ready", func(s *corev1.Service) {
				s.Spec.PublishNotReadyAddresses, s.Spec.Ports[0].TargetPort = true, intstr.FromInt32(1)
			},
			"h=1: 10.1.0.1+ready+serving 10.1.0.2+ready 10.1.0.3+ready+serving+terminating 10.1.0.5+ready+serving", "h=1: 10.1.0.1 10.1.0.2 10.1.0.3 10.1.0.5",
		},
		{
			"headless without ports", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil },
			": 10.1.0.1+ready+serving 10.1.0.2 10.1.0.3+serving+terminating 10.1.0.5+ready+serving", ": 10.1.0.1 10.1.0.5 -10.1.0.2",
		},
		{"nothing selected", func(s *corev1.Service) { s.Spec.Selector["app"] = "other" }, ":", ""},
		{"no selector", func(s *corev1.Service) { s.Spec.Selector = nil }, "", `endpoints "web" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, "endpointslice-controller", "endpoints-controller")
				c.holdIf(func(*corev1.Pod) bool { return true })
				for _, p := range pods {
					c.Put(p)
				}
				s := webService()
				test.change(s)
				c.Put(s)
				c.settle()
				if got := c.endpointSlices(); got != test.slices {
					t.Errorf("slices\n%s\nwant\n%s", got, test.slices)
				}
				if got := c.endpointSubsets(); got != test.subsets {
					t.Errorf("endpoints\n%s\nwant\n%s", got, test.subsets)
				}
			})
		})
	}
}

func TestEndpointsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "endpointslice-controller", "endpoints-controller")
		c.Put(webService())
		c.settle()
		list, err := client.For[*discoveryv1.EndpointSlice](c).List(t.Context(), "ns", metav1.ListOptions{})
		if err != nil || len(list) != 1 {
			t.Fatalf("%d slices (%v), want an empty one", len(list), err)
		}
		c.Put(servicePod("a", "10.1.0.1", 8080, ""))
		c.Put(servicePod("b", "10.1.0.2", 8080, "ready"))
		c.settle()
		if got, err := client.For[*discoveryv1.EndpointSlice](c).Get(t.Context(), "ns", list[0].Name); err != nil || len(got.Endpoints) != 2 {
			t.Errorf("the empty slice is not reused: %v", err)
		} else if ref := got.OwnerReferences[0]; ref.UID != "web" || got.Labels[discoveryv1.LabelServiceName] != "web" || *got.Endpoints[0].Hostname != "a" {
			t.Errorf("owner %v, labels %v, host name %v", ref, got.Labels, *got.Endpoints[0].Hostname)
		}
		for _, step := range []struct {
			name            string
			do              func()
			slices, subsets string
		}{
			{"ready", func() { c.setReady("a", true) }, "h=8080: 10.1.0.1+ready+serving 10.1.0.2+ready+serving", "h=8080: 10.1.0.1 10.1.0.2"},
			{"relabelled", func() {
				p := read[*corev1.Pod](c, "b").DeepCopy()
				p.Labels["app"] = "other"
				c.Put(p)
			}, "h=8080: 10.1.0.1+ready+serving", "h=8080: 10.1.0.1"},
			{"other selector", func() {
				s := read[*corev1.Service](c, "web").DeepCopy()
				s.Spec.Selector["app"] = "other"
				c.Put(s)
			}, "h=8080: 10.1.0.2+ready+serving", "h=8080: 10.1.0.2"},
			{"service gone", func() { c.Remove(read[*corev1.Service](c, "web")) }, "", `endpoints "web" not found`},
		} {
			step.do()
			c.settle()
			if got := c.endpointSlices(); got != step.slices {
				t.Errorf("%s: slices %q, want %q", step.name, got, step.slices)
			}
			if got := c.endpointSubsets(); got != step.subsets {
				t.Errorf("%s: endpoints %q, want %q", step.name, got, step.subsets)
			}
		}
	})
}

func TestManyEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, "endpointslice-controller")
		for i := range 201 {
			c.Put(servicePod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.1.1.%d", i+1), 8080, "ready"))
		}
		c.Put(webService())
		c.settle()
		list, err := client.For[*discoveryv1.EndpointSlice](c).List(t.Context(), "ns", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, s := range list {
			if len(s.Endpoints) > 100 {
				t.Errorf("%d endpoints in one slice", len(s.Endpoints))
			}
			for _, e := range s.Endpoints {
				seen[e.Addresses[0]] = true
			}
		}
		if len(list) != 3 || len(seen) != 201 {
			t.Errorf("%d addresses in %d slices, want 201 in 3", len(seen), len(list))
		}
	})
}

// setReady sets the Ready condition of a pod.
func (c *cluster) setReady(name string, ready bool) {
	p := read[*corev1.Pod](c, name).DeepCopy()
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	if ready {
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	c.Put(p)
}
