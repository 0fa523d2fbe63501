package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa/client"
)

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func priority(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func inZone(zone string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = zone }
}

func terms(key, app string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
}

func near(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(key, app)}}
	}
}

func away(key, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(key, app)}}
	}
}

func spreadOver(key, app string, change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{
			TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}
		for _, f := range change {
			f(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

// TestGroups places "p" among pods of a group, over nodes a1 and a2 of zone a, and b1 of zone b.
func TestGroups(t *testing.T) {
	zone, host := corev1.LabelTopologyZone, "name"
	web := labelled("app", "web")
	minDomains := func(n int32) func(*corev1.TopologySpreadConstraint) {
		return func(c *corev1.TopologySpreadConstraint) { c.MinDomains = &n }
	}
	tail := " preemption: 0/3 nodes are available: "
	cases := []struct {
		name   string
		before []*corev1.Pod
		pod    *corev1.Pod
		nodes  string // allowed ones
		why    string
	}{
		{name: "near, same node", before: []*corev1.Pod{testPod("w", "1", web, on("a2"))}, pod: testPod("p", "1", near(host, "web")), nodes: "a2"},
		{name: "near, same zone", before: []*corev1.Pod{testPod("w", "1", web, on("a2"))}, pod: testPod("p", "1", near(zone, "web")), nodes: "a1 a2"},
		{name: "near, first of its group", pod: testPod("p", "1", web, near(zone, "web")), nodes: "a1 a2 b1"},
		{name: "near, nobody there", pod: testPod("p", "1", near(zone, "web")),
			why: "0/3 nodes are available: 3 node(s) didn't match pod affinity rules." + tail + "3 Preemption is not helpful for scheduling."},
		{name: "away from a zone", before: []*corev1.Pod{testPod("w", "1", web, on("a2"))}, pod: testPod("p", "1", away(zone, "web")), nodes: "b1"},
		{name: "others want it away", before: []*corev1.Pod{testPod("w", "1", away(zone, "web"), on("a2"))}, pod: testPod("p", "1", web), nodes: "b1"},
		{name: "away and away from", before: []*corev1.Pod{testPod("w", "1", web, on("a2")), testPod("v", "1", away(zone, "mine"), on("b1"))},
			pod: testPod("p", "1", away(zone, "web"), labelled("app", "mine")),
			why: "0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 2 node(s) didn't match pod anti-affinity rules." +
				tail + "3 No preemption victims found for incoming pod."},
		{name: "spread over zones", before: []*corev1.Pod{testPod("w", "1", web, on("a2"))}, pod: testPod("p", "1", web, spreadOver(zone, "web")), nodes: "b1"},
		{name: "spread counts the pod itself only if it matches", before: []*corev1.Pod{testPod("w", "1", web, on("a2"))},
			pod: testPod("p", "1", spreadOver(zone, "web")), nodes: "a1 a2 b1"},
		{name: "spread with too few domains", before: []*corev1.Pod{testPod("w", "1", web, on("a2")), testPod("v", "1", web, on("b1"))},
			pod: testPod("p", "1", web, spreadOver(zone, "web", minDomains(3))),
			why: "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints." + tail + "3 No preemption victims found for incoming pod."},
		{name: "spread over a label nobody has", pod: testPod("p", "1", web, spreadOver("rack", "web")),
			why: "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints (missing required label)." + tail + "3 Preemption is not helpful for scheduling."},
		{name: "named node", nodes: "a2", pod: testPod("p", "1", func(p *corev1.Pod) { p.Spec.Affinity = namedNode("a2") })},
		{name: "named node without room", pod: testPod("p", "16", func(p *corev1.Pod) { p.Spec.Affinity = namedNode("a2") }),
			why: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]." + tail + "3 Preemption is not helpful for scheduling."},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, testNode("a1", "8", inZone("a")), testNode("a2", "8", inZone("a")), testNode("b1", "8", inZone("b")))
				for _, p := range c.before {
					l.Put(p)
				}
				synctest.Wait()
				l.Put(c.pod)
				synctest.Wait()
				if got := l.nodeOf("p"); c.nodes == "" && got != "" || c.nodes != "" && (got == "" || !strings.Contains(c.nodes, got)) {
					t.Errorf("on node %q, want one of %q; %s", got, c.nodes, l.refusal("p"))
				}
				if c.why != "" {
					if d := cmp.Diff("Unschedulable: "+c.why, l.refusal("p")); d != "" {
						t.Errorf("condition (-want +got):\n%s", d)
					}
				}
			})
		})
	}
}

func namedNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}},
		}}},
	}}}
}

func TestServicePodsSpreadByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := labelled("app", "web")
		l := start(t, testNode("a", "8"), testNode("b", "8"))
		for _, n := range []string{"a", "b"} {
			node, err := client.For[*corev1.Node](l.Client).Get(t.Context(), "", n)
			if err != nil {
				t.Fatal(err)
			}
			next := node.DeepCopy()
			next.Labels[corev1.LabelHostname] = n
			l.Put(next)
		}
		l.Put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}})
		l.Put(testPod("other", "3", on("b"))) // by room alone, all would go to a
		synctest.Wait()
		count := map[string]int{}
		for i := range 4 {
			name := fmt.Sprint("w", i)
			l.Put(testPod(name, "100m", web))
			synctest.Wait()
			count[l.nodeOf(name)]++
		}
		if d := cmp.Diff(map[string]int{"a": 2, "b": 2}, count); d != "" {
			t.Errorf("pods by node (-want +got):\n%s", d)
		}
	})
}

func TestPreemption(t *testing.T) {
	web := labelled("app", "web")
	cases := []struct {
		name    string
		before  []*corev1.Pod
		budget  bool // one that protects web
		pod     *corev1.Pod
		gone    string
		node    string
		message string
	}{
		{name: "the less important goes", gone: "low", node: "a",
			before: []*corev1.Pod{testPod("low", "2", priority(1), on("a")), testPod("mid", "2", priority(5), on("a"))}, pod: testPod("p", "2", priority(10))},
		{name: "nobody equal goes", before: []*corev1.Pod{testPod("same", "4", priority(10), on("a"))}, pod: testPod("p", "2", priority(10)),
			message: "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."},
		{name: "never", before: []*corev1.Pod{testPod("low", "4", priority(1), on("a"))},
			pod: testPod("p", "2", priority(10), func(p *corev1.Pod) {
				never := corev1.PreemptNever
				p.Spec.PreemptionPolicy = &never
			}),
			message: "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."},
		{name: "protected stays if it can", budget: true, gone: "mid", node: "a",
			before: []*corev1.Pod{testPod("low", "2", priority(1), web, on("a")), testPod("mid", "2", priority(5), on("a"))}, pod: testPod("p", "2", priority(10))},
		{name: "anti-affinity gives way", gone: "low", node: "a",
			before: []*corev1.Pod{testPod("low", "1", priority(1), web, on("a"))}, pod: testPod("p", "1", priority(10), away("name", "web"))},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := start(t, testNode("a", "4"))
				for _, p := range c.before {
					p.Status.StartTime = &metav1.Time{Time: time.Now()}
					l.Put(p)
				}
				if c.budget {
					l.Put(&policyv1.PodDisruptionBudget{
						ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns"},
						Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
					})
				}
				synctest.Wait()
				l.Put(c.pod)
				synctest.Wait()
				if c.message != "" && l.refusal("p") != "Unschedulable: "+c.message {
					t.Errorf("condition %q, want %q", l.refusal("p"), c.message)
				}
				if c.gone != "" {
					if got := l.pod("p").Status.NominatedNodeName; got != "a" {
						t.Errorf("nominated to %q, want a", got)
					}
				}
				for _, p := range c.before {
					left := l.pod(p.Name)
					if leaving := left == nil || left.DeletionTimestamp != nil; leaving != (p.Name == c.gone) {
						t.Errorf("%s leaving: %v", p.Name, leaving)
					} else if left != nil && leaving {
						if !disruptedByScheduler(left) {
							t.Errorf("%s has conditions %v, want DisruptionTarget", p.Name, left.Status.Conditions)
						}
						l.Remove(left)
					}
				}
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if got := l.nodeOf("p"); got != c.node {
					t.Errorf("in the end on %q, want %q; %s", got, c.node, l.refusal("p"))
				}
			})
		})
	}
}

// TestNomineeKeepsItsRoom has a less important pod come by while the victim is leaving.
func TestNomineeKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, testNode("a", "4"))
		l.Put(testPod("low", "4", priority(1), on("a")))
		synctest.Wait()
		l.Put(testPod("p", "4", priority(10)))
		synctest.Wait()
		l.Put(testPod("thief", "4", priority(5)))
		synctest.Wait()
		if low := l.pod("low"); low != nil {
			l.Remove(low)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if l.nodeOf("p") != "a" || l.nodeOf("thief") != "" {
			t.Errorf("p on %q and thief on %q, want a and none", l.nodeOf("p"), l.nodeOf("thief"))
		}
	})
}
