package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// reconciler is /reconciler: it compares all that the runtime has with what the logs say, at start and after each
// gap in the runtime's events.
type reconciler struct {
	system  *System
	running bool
	again   bool
	retries *backoff.ExponentialBackOff
}

type (
	// reconcile asks for a comparison.
	reconcile struct{}
	// reconciled ends one, which may not have come about.
	reconciled struct{ err error }
)

// orphanGrace is how long an object that no log knows is left alone when this very process made it: longer than
// any create takes from its first object to its end.
const orphanGrace = 5 * time.Minute

func (r *reconciler) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.retries = newBackoff()
	case *reconcile:
		if r.running {
			r.again = true
			return
		}
		r.running = true
		self := c.Self()
		r.system.work.Go(func() {
			r.system.actors.Root.Send(self, &reconciled{r.system.reconcile(r.system.working)})
		})
	case *reconciled:
		r.running = false
		switch {
		case m.err != nil:
			r.system.sendLater(c.Self(), &reconcile{}, r.retries.NextBackOff())
			return
		case r.again:
			c.Send(c.Self(), &reconcile{})
		}
		r.retries.Reset()
		r.again = false
	}
}

// reconcile has every sandbox look whose primary should run and does not, and removes what no log knows.
func (s *System) reconcile(ctx context.Context) error {
	var inventory Inventory
	err := s.persistently(ctx, func() error {
		var err error
		inventory, err = s.runtime.Inventory(ctx)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("the runtime cannot be compared with the log, trying again", slog.Any("error", err))
		}
		return err
	}
	for _, e := range s.registry.all() {
		state := e.state.Load()
		switch {
		case state == nil || !state.Up():
		case inventory.Running[e.id]:
			s.attach(e)
		default:
			s.actors.Root.Send(e.pid, &containerEnded{})
		}
	}
	s.removeOrphans(ctx, inventory)
	return nil
}

// attach leaves alone a sandbox that an operation is about to change.
func (s *System) attach(e *entry) {
	select {
	case <-e.gate:
		defer func() { e.gate <- struct{}{} }()
	default:
		return
	}
	if state := e.state.Load(); !state.Up() || state.Operation != lifecycle.NoOperation {
		return
	}
	if err := s.runtime.Attach(e.id); err != nil {
		s.log.Warn("no way for commands yet", slog.String("sandbox_id", e.id), slog.Any("error", err))
	}
}

func (s *System) removeOrphans(ctx context.Context, inventory Inventory) {
	young := false
	for id, foreign := range inventory.Objects {
		switch {
		case !s.orphan(id):
		case !foreign:
			young = true
		default:
			err := s.runtime.Remove(ctx, id)
			s.log.Warn("audit: objects removed", slog.String("sandbox_id", id),
				slog.String("reason", "no log knows this sandbox, or it is DELETED"), slog.Any("error", err))
		}
	}
	for _, id := range inventory.Histories {
		if _, known := s.registry.get(id); !known {
			err := s.runtime.Forget(id)
			s.log.Warn("audit: logs removed", slog.String("sandbox_id", id),
				slog.String("reason", "no log knows this sandbox"), slog.Any("error", err))
		}
	}
	if young {
		s.after(orphanGrace, func() { s.tell(nameReconciler, &reconcile{}) })
	}
}

// orphan reports whether nothing of the sandbox should be in the runtime.
func (s *System) orphan(id string) bool {
	e, known := s.registry.get(id)
	if !known {
		return true
	}
	state, err := e.load(s.db)
	return err == nil && state.Phase == lifecycle.Deleted
}
