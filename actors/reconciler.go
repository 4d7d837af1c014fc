package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/orphan"
	"github.com/agbox-dev/agbox/actors/runtime"
)

// reconciler is /reconciler: it compares all that the runtime has with what the logs say, at start and after each
// gap in the runtime's events.
type reconciler struct {
	system  *System
	running bool
	again   bool
	retries *backoff.ExponentialBackOff
	orphans *orphan.Sweep
	// due is when the orphans are looked at next, nil for not before the next comparison.
	due *alarm
}

type (
	// reconcile asks for a comparison.
	reconcile struct{}
	// reconciled ends one, which may not have come about. At next, if that is not zero, something is due for removal.
	reconciled struct {
		next time.Time
		err  error
	}
)

func (r *reconciler) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		r.retries = newBackoff()
		r.orphans = r.system.sweep()
	case *reconcile:
		if r.running {
			r.again = true
			return
		}
		r.running = true
		self := c.Self()
		r.system.work.Go(func() {
			next, err := r.system.reconcile(r.system.working, r.orphans)
			r.system.actors.Root.Send(self, &reconciled{next, err})
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
		r.due.stop()
		if r.due = nil; !m.next.IsZero() {
			r.due = r.system.alarm(c.Self(), m.next)
		}
	case *alarm:
		if m == r.due {
			c.Send(c.Self(), &reconcile{})
		}
	}
}

// reconcile removes what no log knows.
func (s *System) reconcile(ctx context.Context, orphans *orphan.Sweep) (next time.Time, err error) {
	var inventory runtime.Inventory
	err = s.retryWhileUnreachable(ctx, func() error {
		var err error
		inventory, err = s.runtime.Inventory(ctx)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			s.log.Error("the runtime cannot be compared with the log, trying again", slog.Any("error", err))
		}
		return next, err
	}
	return orphans.Remove(ctx, inventory)
}
