package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// deadlineTimer fires when a sandbox has been idle, or stopped, for its whole time. Its deadline comes from the
// log, so a restart neither shortens nor prolongs it.
type deadlineTimer struct {
	timer      *time.Timer
	at         time.Time
	command    lifecycle.Command
	generation uint64
}

// deadlinePassed is stale when the timer was set again since.
type deadlinePassed struct{ generation uint64 }

// deadline returns what is to be done with a sandbox in this state, and when; nil for nothing ever.
func deadline(config Config, state lifecycle.State, spec *agboxv1.CreateSpec) (time.Time, lifecycle.Command) {
	idle := config.IdleTTL
	if spec.GetIdleTtl() != nil {
		idle = spec.GetIdleTtl().AsDuration()
	}
	switch {
	case state.Idle() && (state.CommandEnded || len(spec.GetCommand()) == 0) && idle > 0:
		return state.ActiveAt.Add(idle), lifecycle.Stop{Reason: lifecycle.ReasonIdleTTL}
	case state.Phase == lifecycle.Stopped && config.CleanupTTL > 0:
		return state.ChangedAt.Add(config.CleanupTTL), lifecycle.Delete{Reason: lifecycle.ReasonCleanupTTL}
	}
	return time.Time{}, nil
}

// set leaves a timer alone that holds the state's deadline already.
func (t *deadlineTimer) set(system *System, self *actor.PID, state lifecycle.State, spec *agboxv1.CreateSpec) {
	at, command := deadline(system.config, state, spec)
	if t.timer != nil && at.Equal(t.at) {
		return
	}
	t.stop()
	if command == nil {
		return
	}
	t.at, t.command = at, command
	passed := &deadlinePassed{t.generation}
	t.timer = time.AfterFunc(time.Until(at), func() { system.actors.Root.Send(self, passed) })
}

// due returns what to do now, nil when m is stale.
func (t *deadlineTimer) due(m *deadlinePassed) lifecycle.Command {
	if m.generation != t.generation {
		return nil
	}
	return t.command
}

func (t *deadlineTimer) stop() {
	t.generation++
	t.command = nil
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
