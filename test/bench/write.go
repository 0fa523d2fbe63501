package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

func writeGroups() []group {
	return []group{
		{[]row{{"durable create of 1 KB, 64 clients, HTTP/2", "2.06 ms CPU (842/s, p99 179 ms)", "<= 0.35 ms (>= 2,500/s)"}},
			func(ctx context.Context, b *bench) ([]reading, error) {
				return b.creates(ctx, configMaps, configMap, func(a *api) *http.Client { return a.h2 }, 350*time.Microsecond, 2500)
			}},
		{[]row{{"the same over HTTP/1.1", "2.0 ms CPU (892/s)", "<= 0.20 ms (>= 5,000/s)"}},
			func(ctx context.Context, b *bench) ([]reading, error) {
				return b.creates(ctx, configMaps, configMap, func(a *api) *http.Client { return a.h1 }, 200*time.Microsecond, 5000)
			}},
		{[]row{{"pods created, 64 clients, HTTP/2", "3.7 ms CPU (495/s)", "<= 0.5 ms"}},
			func(ctx context.Context, b *bench) ([]reading, error) {
				return b.creates(ctx, pods, pod, func(a *api) *http.Client { return a.h2 }, 500*time.Microsecond, 0)
			}},
		{[]row{
			{"one client: create, p50", "4.5 ms; 5.0 ms CPU", "<= 1.0 ms; <= 0.5 ms"},
			{"one client: get, p50", "2.4 ms; 5.0 ms CPU", "<= 0.3 ms; <= 0.5 ms"},
		}, measureOne},
	}
}

// creates measures durable creates by 64 clients, after some that warm the server up.
func (b *bench) creates(ctx context.Context, path string, make func(name string) []byte, with func(*api) *http.Client, budget time.Duration, rate float64) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	c := with(a)
	create := func(prefix string) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			return a.post(ctx, c, path, make(fmt.Sprintf("%s-%d", prefix, i)))
		}
	}
	if _, err := drive(ctx, 64, 2000, create("warm")); err != nil {
		return nil, err
	}
	before := s.cpu()
	l, err := drive(ctx, 64, 10000, create("object"))
	if err != nil {
		return nil, err
	}
	cost := (s.cpu() - before) / time.Duration(l.count)
	return []reading{{
		fmt.Sprintf("%s CPU (%.0f/s, p50 %s, p99 %s)", seconds(cost), l.rate(), seconds(l.percentile(50)), seconds(l.percentile(99))),
		cost <= budget && l.rate() >= rate,
	}}, nil
}

// measureOne is a client that waits for every answer, over HTTP/2 as client libraries do.
func measureOne(ctx context.Context, b *bench) ([]reading, error) {
	s, a, err := b.ready(ctx, "--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	measure := func(count int, budget time.Duration, one func(ctx context.Context, i int) error) (reading, error) {
		before := s.cpu()
		l, err := drive(ctx, 1, count, one)
		cost := (s.cpu() - before) / time.Duration(count)
		p50 := l.percentile(50)
		return reading{fmt.Sprintf("%s; %s CPU (p99 %s)", seconds(p50), seconds(cost), seconds(l.percentile(99))), p50 <= budget && cost <= 500*time.Microsecond}, err
	}
	name := func(i int) string { return fmt.Sprintf("object-%d", i) }
	create, err := measure(2000, time.Millisecond, func(ctx context.Context, i int) error {
		return a.post(ctx, a.h2, configMaps, configMap(name(i)))
	})
	if err != nil {
		return nil, err
	}
	get, err := measure(5000, 300*time.Microsecond, func(ctx context.Context, i int) error {
		return a.get(ctx, a.h2, configMaps+"/"+name(i%2000), io.Discard)
	})
	return []reading{create, get}, err
}
