package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// group runs components: the first that fails stops all, and they stop in the reverse order of their start, so that the API
// server, which starts first, still answers while the others finish.
type group struct {
	log  *slog.Logger
	fail context.CancelCauseFunc
	ctx  context.Context

	mu      sync.Mutex
	members []*member
}

type member struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

func newGroup(ctx context.Context, log *slog.Logger) *group {
	ctx, fail := context.WithCancelCause(ctx)
	return &group{log: log, fail: fail, ctx: ctx}
}

// start runs a component until the group stops.
func (g *group) start(name string, run func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(g.ctx))
	m := &member{name, cancel, make(chan struct{})}
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	go func() {
		defer close(m.done)
		if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			g.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// wait blocks until the group's context ends or a component fails, then stops all and returns the failure.
func (g *group) wait() error {
	<-g.ctx.Done()
	g.mu.Lock()
	members := g.members
	g.mu.Unlock()
	for i := len(members) - 1; i >= 0; i-- {
		members[i].cancel()
		<-members[i].done
		g.log.Debug("stopped", "component", members[i].name)
	}
	if err := context.Cause(g.ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
