package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

func scheduleGroups() []group {
	bare := func(count int) func(ctx context.Context, b *bench) ([]reading, error) {
		return func(ctx context.Context, b *bench) ([]reading, error) { return measureSchedule(ctx, b, count) }
	}
	return []group{
		{[]row{{"10,000 pods to 5,000 nodes, creation included", "109/s, 17.5 ms CPU a pod", ">= 1,000/s, <= 1.5 ms CPU"}}, bare(5000)},
		{[]row{{"10,000 pods to 1,000 nodes, creation included", "-", ">= 1,000/s, <= 1.5 ms CPU"}}, bare(1000)},
		{[]row{{"1,000 hollow nodes with 10,000 running pods", "-", "< 600 MB"}}, measureHollow},
	}
}

const benchPods = 10000

// measureSchedule puts plain pods on nodes that are objects only: nobody lives there.
func measureSchedule(ctx context.Context, b *bench, count int) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := drive(ctx, 64, count, func(ctx context.Context, i int) error { return a.post(ctx, a.h1, nodes, node(i)) }); err != nil {
		return nil, err
	}
	if err := a.untainted(ctx, s); err != nil {
		return nil, err
	}
	before, begin := s.cpu(), time.Now()
	if err := a.createPods(ctx, s, "fieldSelector=spec.nodeName!="); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	rate, cost := benchPods/took.Seconds(), (s.cpu()-before)/benchPods
	return []reading{{fmt.Sprintf("%.0f/s, %s CPU a pod", rate, seconds(cost)), rate >= 1000 && cost <= 1500*time.Microsecond}}, nil
}

// untainted waits until no node is marked as not ready any more.
func (a *api) untainted(ctx context.Context, s *server) error {
	var last error
	err := s.poll(ctx, func() bool {
		var buf bytes.Buffer
		last = a.get(ctx, a.h1, nodes, &buf)
		if last == nil && !bytes.Contains(buf.Bytes(), []byte("node.kubernetes.io/not-ready")) {
			return true
		}
		_ = sleep(ctx, 300*time.Millisecond) // a list of thousands of nodes is no small question; poll sees that ctx ended
		return false
	})
	return errors.Join(err, last)
}

// createPods creates pods with 64 clients and waits until all have appeared in a watch of those that selector finds.
func (a *api) createPods(ctx context.Context, s *server, selector string) error {
	revision, err := a.revision(ctx, pods)
	if err != nil {
		return err
	}
	var found atomic.Int64
	watching, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		failed <- a.watch(watching, pods+"?watch=true&resourceVersion="+revision+"&"+selector, func(line []byte) {
			if bytes.Contains(line[:min(len(line), 40)], []byte("ADDED")) {
				found.Add(1)
			}
		})
	}()
	defer func() { stop(); <-failed }()
	if _, err := drive(ctx, 64, benchPods, func(ctx context.Context, i int) error {
		return a.post(ctx, a.h2, pods, pod(fmt.Sprintf("pod-%d", i)))
	}); err != nil {
		return err
	}
	for range 4 { // poll waits a minute and a half
		if err = s.poll(ctx, func() bool { return found.Load() >= benchPods }); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%d of %d pods: %w", found.Load(), benchPods, err)
}

// measureHollow runs the nodes' usual agents on a simulated runtime.
func measureHollow(ctx context.Context, b *bench) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node", "--hollow-nodes", "1000")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := s.poll(ctx, func() bool {
		var buf bytes.Buffer
		err := a.get(ctx, a.h1, nodes, &buf)
		_ = sleep(ctx, 200*time.Millisecond)
		return err == nil && bytes.Count(buf.Bytes(), []byte(`"reason":"KubeletReady"`)) >= 1000
	}); err != nil {
		return nil, fmt.Errorf("nodes ready: %w", err)
	}
	ready := time.Since(s.started)
	if err := a.untainted(ctx, s); err != nil {
		return nil, err
	}
	before, begin := s.cpu(), time.Now()
	if err := a.createPods(ctx, s, "fieldSelector=status.phase=Running"); err != nil {
		return nil, err
	}
	took, cost := time.Since(begin), (s.cpu()-before)/benchPods
	memory := rss(s.pid)
	return []reading{{
		fmt.Sprintf("%s; nodes %s, pods %s, %s CPU a pod", megabytes(memory), seconds(ready), seconds(took), seconds(cost)), memory < 600_000_000,
	}}, nil
}
