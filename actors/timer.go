package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// nextTimer fires when lifecycle.Next has something for the sandbox. Its time comes from the log, so a restart neither shortens
// nor prolongs it.
type nextTimer struct {
	timer      *time.Timer
	at         time.Time
	generation uint64
	// fired is the sequence at which it fired, 0 while it has not.
	fired uint64
}

// timePassed is stale when the timer was set again since.
type timePassed struct{ generation uint64 }

// setTimer leaves a timer alone that is set to the right time already. One that has fired is set again when the state has changed
// since and still asks for the same.
func (s *sandbox) setTimer(self *actor.PID) {
	t := &s.timer
	_, at := s.next()
	if t.timer != nil && at.Equal(t.at) && (t.fired == 0 || t.fired == s.state.Sequence) {
		return
	}
	t.stop()
	if !at.IsZero() {
		t.at, t.fired = at, 0
		s.sleep(self)
	}
}

func (s *sandbox) sleep(self *actor.PID) {
	system, passed := s.system, &timePassed{s.timer.generation}
	s.timer.timer = time.AfterFunc(system.sleep(s.timer.at), func() { system.actors.Root.Send(self, passed) })
}

func (s *sandbox) next() (lifecycle.Command, time.Time) {
	return lifecycle.Next(s.state, s.system.policy(s.entry.spec), s.entry.lease.now(), s.system.now())
}

// timePassed does what is due by now: somebody may hold the lease again.
func (s *sandbox) timePassed(c actor.Context, m *timePassed) {
	now := s.system.now()
	switch {
	case m.generation != s.timer.generation:
	case now.Before(s.timer.at):
		s.sleep(c.Self())
	default:
		s.timer.fired = s.state.Sequence
		if next, at := s.next(); next != nil && !at.After(now) {
			s.take(c, []*step{s.fact(c.Self(), m, next)})
			return
		}
		s.act(c)
	}
}

func (t *nextTimer) stop() {
	t.generation++
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}
