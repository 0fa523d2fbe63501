package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

func startGroups() []group {
	return []group{
		{[]row{
			{"start, empty data directory, to /readyz", "3.7 s, 3.7 CPU s", "< 0.5 s"},
			{"to the default service account", "9.0 s, 7.6 CPU s", "< 0.8 s"},
		}, measureStart},
		{[]row{{"proa up to a real pod Ready, image present", "-", "< 3 s"}}, measureFirstPod},
		{[]row{
			{"memory, idle (node, proxy, DNS)", "473 MB, control plane alone", "< 80 MB"},
			{"CPU, idle", "6.9 % of a core", "< 0.5 %"},
			{"bytes written, idle", "1.8 MB a minute", "< 0.1 MB a minute"},
		}, measureIdle},
	}
}

func measureStart(ctx context.Context, b *bench) ([]reading, error) {
	s, err := b.start("--no-node")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	ready, err := s.waitReady(ctx)
	if err != nil {
		return nil, err
	}
	readyCPU := s.cpu()
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	account := time.Since(s.started)
	if err := c.get(ctx, c.h1, "/readyz", io.Discard); err != nil {
		return nil, err
	}
	return []reading{
		{fmt.Sprintf("%s, %.2f CPU s", seconds(ready), readyCPU.Seconds()), ready < 500*time.Millisecond},
		{fmt.Sprintf("%s, %.2f CPU s", seconds(account), s.cpu().Seconds()), account < 800*time.Millisecond},
	}, nil
}

func measureIdle(ctx context.Context, b *bench) ([]reading, error) {
	node := []string{}
	note := ""
	if needRoot() != nil {
		node, note = []string{"--no-node"}, " (without a node)"
	}
	s, c, err := b.ready(ctx, node...)
	if err != nil {
		return nil, err
	}
	if note == "" {
		defer b.down(s.dir)
		defer s.end()
		if err := waitNode(ctx, s, c); err != nil {
			return nil, err
		}
	} else {
		defer s.stop()
	}
	c.h1.CloseIdleConnections()
	if err := sleep(ctx, 20*time.Second); err != nil { // what follows the start
		return nil, err
	}
	cpu, bytes, begin := s.cpu(), written(s.pid), time.Now()
	if err := sleep(ctx, b.idle); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	share := (s.cpu() - cpu).Seconds() / took.Seconds() * 100
	perMinute := int64(float64(written(s.pid)-bytes) / took.Minutes())
	memory := rss(s.pid)
	anonymous := procField(s.pid, "status", "RssAnon:") * 1024
	return []reading{
		{fmt.Sprintf("%s, %s of it not the program file%s", megabytes(memory), megabytes(anonymous), note), memory < 80_000_000},
		{fmt.Sprintf("%.2f %%%s", share, note), share < 0.5},
		{fmt.Sprintf("%.3f MB a minute%s", float64(perMinute)/1e6, note), perMinute < 100_000},
	}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// needRoot is why no real node can run here, or nil. Two clusters with real nodes share a machine's bridge and packet
// rules, so a running one is left alone.
func needRoot() error {
	if os.Geteuid() != 0 {
		return skip("needs root")
	}
	if _, err := os.Stat("/sys/class/net/proa0"); err == nil {
		return skip("another cluster runs real pods on this machine")
	}
	return nil
}
