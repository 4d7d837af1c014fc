package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// idleTimer fires when a sandbox has been idle for its whole idle time. Its deadline comes from the log, so
// a restart neither shortens nor prolongs it.
type idleTimer struct {
	timer      *time.Timer
	deadline   time.Time
	generation uint64
}

// idleExpired is stale when the timer was set again since.
type idleExpired struct{ generation uint64 }

// set derives the deadline from the state; it leaves a timer alone that holds it already.
func (t *idleTimer) set(system *System, self *actor.PID, state lifecycle.State, spec *agboxv1.CreateSpec) {
	ttl := system.config.IdleTTL
	if spec.GetIdleTtl() != nil {
		ttl = spec.GetIdleTtl().AsDuration()
	}
	if ttl <= 0 || !state.Idle() {
		t.stop()
		return
	}
	deadline := state.ActiveAt.Add(ttl)
	if t.timer != nil && deadline.Equal(t.deadline) {
		return
	}
	t.stop()
	t.deadline = deadline
	expired := &idleExpired{t.generation}
	t.timer = time.AfterFunc(time.Until(deadline), func() { system.actors.Root.Send(self, expired) })
}

func (t *idleTimer) expired(m *idleExpired) bool { return m.generation == t.generation }

func (t *idleTimer) stop() {
	t.generation++
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
