package actors

import (
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// router is /docker: it turns what the runtime sees end into messages to the sandboxes concerned.
type router struct {
	system *System
	since  time.Time
}

func (r *router) Receive(c actor.Context) {
	if _, started := c.Message().(*actor.Started); !started {
		return
	}
	r.system.work.Go(func() {
		r.system.runtime.Watch(r.system.working, r.since, r.ended, r.missed)
	})
}

func (r *router) ended(sandboxID string) {
	if e, found := r.system.registry.get(sandboxID); found && e.pid != nil {
		r.system.actors.Root.Send(e.pid, &primaryEnded{})
	}
}

// missed has every sandbox look for itself: what happened in the gap will not be told again.
func (r *router) missed() {
	r.system.log.Warn("runtime events were missed, looking at every sandbox")
	entries := r.system.registry.all()
	for _, e := range entries {
		if e.pid != nil {
			r.system.actors.Root.Send(e.pid, &primaryEnded{})
		}
	}
	r.system.log.Info("sandboxes were asked to look", slog.Int("count", len(entries)))
}
