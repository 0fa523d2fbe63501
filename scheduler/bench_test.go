package scheduler

import (
	"fmt"
	"testing"

	"proa/api/builtin"
	"proa/client/clientfake"
)

// BenchmarkSchedule5000Nodes measures the decision alone: plain pods onto 5,000 bare nodes.
func BenchmarkSchedule5000Nodes(b *testing.B) {
	s, err := New(Config{Client: clientfake.New(builtin.Table())})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		s.state.setNode(testNode(fmt.Sprint("node-", i), "32", inZone(fmt.Sprint(i%3))))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		p := newPodInfo(testPod(fmt.Sprint("pod-", i), "1m"))
		d := s.decide(p)
		if d.node == nil {
			b.Fatal(d.message)
		}
		p.node = d.node.name
		s.state.place(p)
	}
}
