package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/runtime"
)

var _ runtime.Watcher = (*router)(nil)

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
		r.system.runtime.Watch(r.system.working, r.since, r)
	})
}

// Ended implements runtime.Watcher.
func (r *router) Ended(sandboxID string) {
	if r.system.lostWarm(sandboxID, "it ended") {
		return
	}
	if e, found := r.system.registry.get(sandboxID); found && e.pid != nil {
		r.system.actors.Root.Send(e.pid, &containerEnded{})
	}
}

// LinkLost implements runtime.Watcher.
func (r *router) LinkLost(sandboxID, why string) {
	if r.system.lostWarm(sandboxID, why) {
		return
	}
	if e, found := r.system.registry.get(sandboxID); found && e.pid != nil {
		r.system.actors.Root.Send(e.pid, &linkLost{why})
	}
}

// Appeared implements runtime.Watcher. An engine finishes what a daemon that died had asked for, also after the next one
// has removed the sandbox.
func (r *router) Appeared(sandboxID string) {
	e, found := r.system.registry.get(sandboxID)
	if !found {
		return
	}
	if e.pid != nil {
		r.system.actors.Root.Send(e.pid, &appeared{})
	} else { // DELETED before this process began
		r.system.send(nameReconciler, &reconcile{})
	}
}

// ImagesChanged implements runtime.Watcher.
func (r *router) ImagesChanged() { r.system.pool.ImagesChanged() }

// Missed implements runtime.Watcher. Every sandbox looks at its containers: no list of the engine's says that they live, since it
// may be behind the end of one of which nothing will be told any more.
func (r *router) Missed() {
	r.system.log.Warn("runtime events were missed, comparing the runtime with the log")
	for _, e := range r.system.registry.all() {
		r.Ended(e.id)
	}
	r.system.pool.Missed()
	r.system.send(nameReconciler, &reconcile{})
}
