package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Now)
		for _, p := range []*corev1.Pod{testPod("old", "1"), testPod("new", "1"), testPod("vip", "1", priority(7))} {
			q.add(newPodInfo(p), false)
			time.Sleep(time.Second)
		}
		q.add(newPodInfo(testPod("gated", "1", priority(9))), true)
		for _, want := range []string{"vip", "old", "new"} {
			if e := q.pop(); e == nil || e.info.pod.Name != want {
				t.Fatalf("popped %v, want %s", e, want)
			}
		}
		if e := q.pop(); e != nil {
			t.Errorf("popped %s, want nothing: it is gated", e.info.pod.Name)
		}
	})
}

func TestQueueBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Now)
		q.add(newPodInfo(testPod("p", "1")), false)
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
			e := q.pop()
			q.fail(e, sets.New(nodeResourcesFitName))
			q.wakeIf(func(*entry) bool { return true })
			due, _ := q.next()
			if got := time.Until(due); got != want {
				t.Errorf("attempt %d: back-off of %v, want %v", e.attempts, got, want)
			}
			time.Sleep(want)
		}
	})
}

func TestQueueWaitsForHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(time.Now)
		q.add(newPodInfo(testPod("p", "1")), false)
		q.fail(q.pop(), sets.New(nodeResourcesFitName))
		q.wakeIf(func(*entry) bool { return false })
		time.Sleep(time.Minute)
		if e := q.pop(); e != nil {
			t.Fatal("ready though nothing helped")
		}
		q.wakeIf(func(e *entry) bool { return e.rejectedBy.Has(nodeResourcesFitName) })
		e := q.pop()
		if e == nil {
			t.Fatal("not ready though its back-off is long over")
		}
		q.fail(e, sets.New(nodeResourcesFitName))
		time.Sleep(maxUnschedulable)
		if q.pop() == nil {
			t.Errorf("not tried again after %v", maxUnschedulable)
		}
	})
}
