// Package controllers holds the control loops that move the cluster towards what its objects ask for, one file or folder
// each, on one generic queue (internal/queue). A controller reads shared objects through client, makes one step per key,
// and works the same after a restart, a missed event or a double one. List is the visible set of them.
package controllers

import (
	"context"
	"log/slog"
	"sync"

	"proa/client"
	"proa/client/events"
)

// Deps is what every controller is made from.
type Deps struct {
	// Client acts as the controller's own service account in kube-system, as upstream's do.
	Client client.Interface
	Log    *slog.Logger
	Events *events.Recorder
	// Config holds the few settings that operators change.
	Config Config
}

// Controller runs until ctx ends and leaves no goroutine behind.
type Controller interface {
	Run(ctx context.Context) error
}

// Entry names a controller and makes it.
type Entry struct {
	// Name as upstream's controller manager knows it ("deployment-controller").
	Name string
	// Account is the service account in kube-system it acts as ("deployment-controller").
	Account string
	New     func(Deps) Controller
}

// eventSource is the component that users know from the events of a controller: its name, with a few exceptions that are
// older than the names.
func (e Entry) eventSource() string {
	switch e.Name {
	case "disruption-controller":
		return "controllermanager"
	case "endpoints-controller":
		return "endpoint-controller"
	case "endpointslice-controller":
		return "endpoint-slice-controller"
	case "endpointslice-mirroring-controller":
		return "endpoint-slice-mirroring-controller"
	case "node-lifecycle-controller":
		return "node-controller"
	case "node-ipam-controller":
		return "cidrAllocator"
	}
	return e.Name
}

// Run runs every controller of List until ctx ends or one fails. client returns the client of a service account.
func Run(ctx context.Context, log *slog.Logger, config Config, clientAs func(account string) client.Interface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, e := range List() {
		c := clientAs(e.Account)
		log := log.With("controller", e.Name)
		recorder := events.New(c, log, e.eventSource(), "")
		wg.Go(func() {
			if err := recorder.Run(ctx); err != nil {
				cancel(err)
			}
		})
		controller := e.New(Deps{Client: c, Log: log, Events: recorder, Config: config})
		wg.Go(func() {
			if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && err != context.Canceled {
		return err
	}
	return nil
}
