package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// maxSleep is how late an alarm is at most when the host was suspended, or its clock set forward: timers count the time that the
// machine was awake and know nothing of that.
const maxSleep = time.Minute

// alarm is sent to an actor once the host's clock has reached at. Of an actor's alarms only the one that it still has counts.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

func (s *System) alarm(to *actor.PID, at time.Time) *alarm {
	a := &alarm{at: at}
	sleep := func() time.Duration { return min(max(at.Sub(s.now()), time.Nanosecond), maxSleep) }
	a.timer = time.AfterFunc(maxSleep, func() {
		switch {
		case s.working.Err() != nil:
		case s.now().Before(at):
			a.timer.Reset(sleep())
		default:
			s.actors.Root.Send(to, a)
		}
	})
	a.timer.Reset(sleep())
	return a
}

func (a *alarm) stop() {
	if a != nil {
		a.timer.Stop()
	}
}

func (s *sandbox) policy() lifecycle.Policy { return s.system.policy(s.entry.spec) }

func (s *sandbox) next() (lifecycle.Command, time.Time) {
	return lifecycle.Next(s.state, s.policy(), s.entry.presence(), s.system.now())
}

// setAlarm leaves an alarm alone that is set to the right time already. One that has rung is set again when the state has changed
// since and still asks for the same.
func (s *sandbox) setAlarm(c actor.Context) {
	_, at := s.next()
	if s.alarm != nil && at.Equal(s.alarm.at) && (s.rang == 0 || s.rang == s.state.Sequence) {
		return
	}
	s.alarm.stop()
	s.alarm, s.rang = nil, 0
	if !at.IsZero() {
		s.alarm = s.system.alarm(c.Self(), at)
	}
}

// ring does what is due by now: somebody may hold the lease again.
func (s *sandbox) ring(c actor.Context, m *alarm) {
	if m != s.alarm {
		return
	}
	s.rang = s.state.Sequence
	if next, at := s.next(); next != nil && !at.After(s.system.now()) {
		s.take(c, []*step{s.fact(c.Self(), m, next)})
		return
	}
	s.act(c)
}
