package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// watchers is how many connections follow one kind.
const watchers = 200

// fanout is 200 watchers of the ConfigMaps of a namespace, counting events. Names of objects carry the time of their
// creation, which a tenth of the watchers compare with theirs.
type fanout struct {
	events    atomic.Int64
	mu        sync.Mutex
	latencies []time.Duration
}

// measureWatch first creates as fast as it can for the number of events, then steadily for the delay: a queue that is full
// says nothing about delays. Client and server share the machine.
func measureWatch(ctx context.Context, b *bench) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	revision, err := a.revision(ctx, configMaps)
	if err != nil {
		return nil, err
	}
	var f fanout
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	for i := range watchers {
		wg.Go(func() {
			if err := a.watch(ctx, configMaps+"?watch=true&resourceVersion="+revision, f.event(i%10 == 0)); ctx.Err() == nil {
				cancel(fmt.Errorf("watch: %w", err))
			}
		})
	}
	create := func(ctx context.Context, _ int) error {
		return a.post(ctx, a.h1, configMaps, configMap(fmt.Sprintf("t%d", time.Now().UnixNano())))
	}
	// The first objects make sure that all are watching.
	if err := f.run(ctx, s, 1, 20, create); err != nil {
		return nil, err
	}
	before, begin := s.cpu(), time.Now()
	const objects = 4000
	if err := f.run(ctx, s, 16, objects, create); err != nil {
		return nil, err
	}
	rate := objects * watchers / time.Since(begin).Seconds()
	cost := (s.cpu() - before) / (objects * watchers)
	f.mu.Lock()
	f.latencies = nil
	f.mu.Unlock()
	steady := time.NewTicker(10 * time.Millisecond)
	defer steady.Stop()
	if err := f.run(ctx, s, 1, 300, func(ctx context.Context, i int) error {
		<-steady.C
		return create(ctx, i)
	}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.latencies)
	p99 := f.latencies[len(f.latencies)*99/100]
	return []reading{{
		fmt.Sprintf("%.0f events/s, %.1f us CPU each; at 20,000/s p99 %s", rate, float64(cost.Nanoseconds())/1e3, seconds(p99)),
		rate >= 170_000 && p99 < 20*time.Millisecond,
	}}, nil
}

// run creates objects and waits until every watcher has seen them all.
func (f *fanout) run(ctx context.Context, s *server, clients, objects int, create func(context.Context, int) error) error {
	want := f.events.Load() + int64(objects)*watchers
	if _, err := drive(ctx, clients, objects, create); err != nil {
		return err
	}
	if err := s.poll(ctx, func() bool { return f.events.Load() >= want }); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%d events are missing: %w", want-f.events.Load(), err))
	}
	return nil
}

// event returns what a watcher does with a line.
func (f *fanout) event(sample bool) func(line []byte) {
	name := []byte(`"name":"t`)
	return func(line []byte) {
		if sample {
			now := time.Now()
			if _, rest, ok := bytes.Cut(line, name); ok && len(rest) > 19 {
				if sent, err := strconv.ParseInt(string(rest[:19]), 10, 64); err == nil {
					f.mu.Lock()
					f.latencies = append(f.latencies, now.Sub(time.Unix(0, sent)))
					f.mu.Unlock()
				}
			}
		}
		if bytes.Contains(line[:min(len(line), 40)], []byte("ADDED")) {
			f.events.Add(1)
		}
	}
}
