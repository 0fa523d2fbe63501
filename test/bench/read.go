package main

import (
	"context"
	"fmt"
	"time"
)

func readGroups() []group {
	return []group{
		{[]row{
			{"LIST 10,000 pods, JSON: server CPU", "0.7 s (29 MB)", "<= 70 ms"},
			{"LIST 10,000 pods, protobuf: server CPU", "0.4 s (19 MB)", "<= 40 ms"},
			{"memory with 10,000 pods", "1,022 MB", "<= 200 MB"},
		}, measureList},
		{[]row{{"memory with 20,000 ConfigMaps of 1 KB", "836 MB", "<= 160 MB"}}, measureMemory},
		{[]row{{"watch fan-out, 200 watchers", "21,400 events/s", ">= 170,000/s, p99 < 20 ms"}}, measureWatch},
	}
}

func measureList(ctx context.Context, b *bench) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := drive(ctx, 64, 10000, func(ctx context.Context, i int) error { return a.post(ctx, a.h1, pods, bigPod(i)) }); err != nil {
		return nil, err
	}
	if err := sleep(ctx, 10*time.Second); err != nil {
		return nil, err
	}
	memory := rss(s.pid)
	var readings []reading
	for _, form := range []struct {
		accept string
		budget time.Duration
	}{{asJSON, 70 * time.Millisecond}, {asProtobuf, 40 * time.Millisecond}} {
		r, err := a.lists(ctx, s, form.accept, form.budget)
		if err != nil {
			return nil, err
		}
		readings = append(readings, r)
	}
	return append(readings, reading{fmt.Sprintf("%s (%s after lists of both forms)", megabytes(memory), megabytes(rss(s.pid))), memory <= 200_000_000}), nil
}

// lists asks for all pods several times; the first time the server has nothing encoded.
func (a *api) lists(ctx context.Context, s *server, accept string, budget time.Duration) (reading, error) {
	var size counter
	list := func() (time.Duration, error) {
		size = 0
		before := s.cpu()
		err := a.read(ctx, a.h2, pods, accept, &size)
		return s.cpu() - before, err
	}
	first, err := list()
	if err != nil {
		return reading{}, err
	}
	const times = 20
	var total time.Duration
	begin := time.Now()
	for range times {
		took, err := list()
		if err != nil {
			return reading{}, err
		}
		total += took
	}
	each := total / times
	return reading{
		fmt.Sprintf("%s (first %s; %s, %s each)", seconds(each), seconds(first), megabytes(int64(size)), seconds(time.Since(begin)/times)),
		each <= budget,
	}, nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func measureMemory(ctx context.Context, b *bench) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := drive(ctx, 64, 20000, func(ctx context.Context, i int) error {
		return a.post(ctx, a.h1, configMaps, configMap(fmt.Sprintf("object-%d", i)))
	}); err != nil {
		return nil, err
	}
	peak := rss(s.pid)
	if err := sleep(ctx, 10*time.Second); err != nil {
		return nil, err
	}
	memory := rss(s.pid)
	return []reading{{fmt.Sprintf("%s (%s just after the last)", megabytes(memory), megabytes(peak)), memory <= 160_000_000}}, nil
}
