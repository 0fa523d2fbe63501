package controllers

import (
	"errors"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa/api/builtin"
	"proa/client"
	"proa/client/clientfake"
)

func TestSlowStart(t *testing.T) {
	var calls atomic.Int32
	done, err := slowStart(100, func(i int) error {
		if i < 7 {
			return nil
		}
		calls.Add(1)
		return errors.New("no")
	})
	// 1, 2, 4 succeed; of the next 8 all fail, and no more are tried.
	if done != 7 || err == nil || calls.Load() != 8 {
		t.Errorf("%d done, %d failed, error %v; want 7, 8 and an error", done, calls.Load(), err)
	}
	seen := make([]bool, 100)
	if done, err := slowStart(100, func(i int) error { seen[i] = true; return nil }); done != 100 || err != nil {
		t.Errorf("%d done, error %v; want 100 and none", done, err)
	}
	for i, ok := range seen {
		if !ok {
			t.Errorf("%d was left out", i)
		}
	}
}

func TestSettled(t *testing.T) {
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "owner"}}
	pod := func(uid string, deleting bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: types.UID(uid), OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
		}}}
		if deleting {
			p.DeletionTimestamp = new(metav1.Now())
		}
		return p
	}
	for name, test := range map[string]struct {
		gone             bool
		indexed, current *corev1.Pod // what the index shows, and what is true
		want             bool
	}{
		"made and seen":                        {false, pod("1", false), pod("1", false), true},
		"made, not seen yet":                   {false, nil, pod("1", false), false},
		"made, deleted before it was seen":     {false, nil, nil, true},
		"made, replaced before it was seen":    {false, nil, pod("2", false), true},
		"deleted, still shown":                 {true, pod("1", false), nil, false},
		"deleted, shown as being deleted":      {true, pod("1", true), pod("1", true), true},
		"deleted, and another of its name":     {true, pod("2", false), pod("2", false), true},
		"deleted and gone":                     {true, nil, nil, true},
		"deleted, still shown, replaced since": {true, pod("1", false), pod("2", false), false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := clientfake.New(builtin.Table())
			c := newPodControl(Deps{Client: fake}, "ReplicaSet")
			c.lister = c.pods.Lister(t.Context())
			if test.current != nil {
				fake.Put(test.current)
			}
			if test.indexed != nil {
				c.byOwner.Apply(client.Event{Resource: c.pods.Kind(), New: test.indexed})
			}
			c.seen.expect(owner.UID, pod("1", false), test.gone)
			if got := c.settled(owner); got != test.want {
				t.Errorf("settled is %v, want %v", got, test.want)
			}
		})
	}
}

// Controllers of one kind do not keep the pods of others.
func TestPodsByOwner(t *testing.T) {
	index := podsByOwner("Job")
	for _, ref := range []*metav1.OwnerReference{nil, {Kind: "Job", UID: "j", Controller: new(true)}, {Kind: "ReplicaSet", UID: "r", Controller: new(true)}} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}}
		if ref != nil {
			p.Name, p.OwnerReferences = string(ref.UID), []metav1.OwnerReference{*ref}
		}
		index.Apply(client.Event{New: p})
	}
	if index.Len("j") != 1 || index.Len("r") != 0 || index.Len(orphansOf("ns")) != 1 {
		t.Errorf("%d of the Job, %d of the ReplicaSet, %d orphans; want 1, 0, 1", index.Len("j"), index.Len("r"), index.Len(orphansOf("ns")))
	}
}
