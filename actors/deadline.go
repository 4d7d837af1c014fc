package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// deadlineTimer fires at the next of a sandbox's deadlines: idle, stopped or draining for its whole time, or expired. Its deadline comes from the
// log, so a restart neither shortens nor prolongs it.
type deadlineTimer struct {
	timer      *time.Timer
	at         time.Time
	command    lifecycle.Command
	generation uint64
	// fired is the sequence at which it fired, 0 while it has not.
	fired uint64
}

// deadlinePassed is stale when the timer was set again since.
type deadlinePassed struct{ generation uint64 }

// What a spec's on_idle and on_expiry may be, beside the default.
const (
	byPause  = "pause"
	byDelete = "delete"
	byStop   = "stop"
)

// deadline returns what is to be done next with a sandbox in this state, and when; nil for nothing ever.
func deadline(config Config, state lifecycle.State, e *entry) (at time.Time, command lifecycle.Command) {
	spec := e.spec
	consider := func(when time.Time, what lifecycle.Command) {
		if command == nil || when.Before(at) {
			at, command = when, what
		}
	}
	if at := idleAt(config, state, spec); !at.IsZero() {
		consider(at, onIdle(spec))
	}
	if state.Phase == lifecycle.Stopped && config.CleanupTTL > 0 {
		consider(state.ChangedAt.Add(config.CleanupTTL), lifecycle.Delete{Reason: lifecycle.ReasonCleanupTTL})
	}
	if state.Phase == lifecycle.Draining && state.Operation == lifecycle.NoOperation && !state.DrainUntil.IsZero() {
		consider(state.DrainUntil, lifecycle.DrainExpired{})
	}
	if expires := expiry(state, spec); !expires.IsZero() {
		switch {
		case spec.GetOnExpiry() != byStop && state.Phase != lifecycle.Deleting && state.Phase != lifecycle.Deleted:
			consider(expires, lifecycle.Delete{Reason: lifecycle.ReasonMaxDuration})
		case spec.GetOnExpiry() == byStop && canStop(state):
			consider(expires, lifecycle.Stop{Reason: lifecycle.ReasonMaxDuration})
		}
	}
	if ends := e.leaseEnd(state); !ends.IsZero() {
		switch {
		case spec.Lease.OnEnd != byStop:
			consider(ends, lifecycle.Delete{Reason: lifecycle.ReasonLeaseEnded})
		case canStop(state):
			consider(ends, lifecycle.Stop{Reason: lifecycle.ReasonLeaseEnded})
		}
	}
	return at, command
}

func canStop(state lifecycle.State) bool {
	return state.Up() && state.Operation == lifecycle.NoOperation || state.Operation == lifecycle.Restarting
}

func idleTTL(config Config, state lifecycle.State, spec *agboxv1.CreateSpec) time.Duration {
	switch {
	case state.IdleTTL != nil:
		return *state.IdleTTL
	case spec.GetIdleTtl() != nil:
		return spec.GetIdleTtl().AsDuration()
	}
	return config.IdleTTL
}

// idleAt is when the sandbox has been idle for too long, zero for never. Its own command is work as long as it runs.
func idleAt(config Config, state lifecycle.State, spec *agboxv1.CreateSpec) time.Time {
	idle := idleTTL(config, state, spec)
	if idle <= 0 || !state.Idle() || len(spec.GetCommand()) > 0 && !state.CommandEnded {
		return time.Time{}
	}
	return state.ActiveAt.Add(idle)
}

func onIdle(spec *agboxv1.CreateSpec) lifecycle.Command {
	switch spec.GetOnIdle() {
	case byPause:
		return lifecycle.Pause{Reason: lifecycle.ReasonIdleTTL}
	case byDelete:
		return lifecycle.Delete{Reason: lifecycle.ReasonIdleTTL}
	}
	return lifecycle.Stop{Reason: lifecycle.ReasonIdleTTL}
}

// expiry is when the sandbox's time is over, zero for never.
func expiry(state lifecycle.State, spec *agboxv1.CreateSpec) time.Time {
	switch {
	case state.Extended:
		return state.ExpiresAt
	case spec.GetMaxDuration() != nil && !state.CreatedAt.IsZero():
		return state.CreatedAt.Add(spec.GetMaxDuration().AsDuration())
	}
	return time.Time{}
}

// set leaves a timer alone that holds the state's deadline already. One that has fired is set again when the state has
// changed since and still asks for the same.
func (t *deadlineTimer) set(system *System, self *actor.PID, state lifecycle.State, e *entry) {
	at, command := deadline(system.config, state, e)
	if t.timer != nil && at.Equal(t.at) && command == t.command && (t.fired == 0 || t.fired == state.Sequence) {
		return
	}
	t.stop()
	if command == nil {
		return
	}
	t.at, t.command, t.fired = at, command, 0
	t.sleep(system, self)
}

func (t *deadlineTimer) sleep(system *System, self *actor.PID) {
	passed := &deadlinePassed{t.generation}
	t.timer = time.AfterFunc(system.sleep(t.at), func() { system.actors.Root.Send(self, passed) })
}

// due returns what to do now, nil when m is stale, or early: then it sleeps on.
func (t *deadlineTimer) due(system *System, self *actor.PID, m *deadlinePassed, sequence uint64) lifecycle.Command {
	if m.generation != t.generation {
		return nil
	}
	if system.now().Before(t.at) {
		t.sleep(system, self)
		return nil
	}
	t.fired = sequence
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
