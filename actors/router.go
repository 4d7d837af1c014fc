package actors

import (
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

// missed has everything compared: what happened in the gap will not be told again.
func (r *router) missed() {
	r.system.log.Warn("runtime events were missed, comparing the runtime with the log")
	r.system.tell(nameReconciler, &reconcile{})
}
