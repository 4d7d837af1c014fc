package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// holds reports whether a use of the sandbox has to wait for it: a lazy one is made first, and one that was paused because
// it was idle goes on for an exec.
func (s *sandbox) holds(m *request) bool {
	_, exec := m.command.(lifecycle.StartExec)
	_, use := m.command.(lifecycle.Use)
	if !exec && !use {
		return false
	}
	if s.state.Phase == lifecycle.Dormant || s.making() {
		return true
	}
	idle := s.state.Reason == lifecycle.ReasonIdleTTL
	return exec && idle && (s.state.Phase == lifecycle.Paused || s.state.Operation == lifecycle.Pausing) ||
		len(s.held) > 0 && s.state.Operation == lifecycle.Unpausing
}

// making reports whether a lazy sandbox is being made.
func (s *sandbox) making() bool {
	return s.state.Lazy && s.state.Operation == lifecycle.Creating
}

// hold keeps the use until the sandbox goes on. Those who wait are bounded by the requests that are served at once.
func (s *sandbox) hold(c actor.Context, m *request) {
	s.held = append(s.held, m)
	s.tried = s.tried || s.making()
	s.wake(c)
}

// wake has the sandbox go on when a use waits for that, and lets them go when it does, or will not. All that wait
// together share one try.
func (s *sandbox) wake(c actor.Context) {
	if len(s.held) == 0 {
		return
	}
	switch {
	case s.state.Operation == lifecycle.Pausing, s.state.Operation == lifecycle.Unpausing, s.making():
	case s.state.Phase == lifecycle.Dormant && s.tried:
		s.release(c, lifecycle.NotReady(s.state))
	case s.state.Phase == lifecycle.Dormant:
		s.tried = true
		s.goOn(c, lifecycle.Use{})
	case s.state.Phase == lifecycle.Paused && s.state.Operation == lifecycle.NoOperation && s.operation == nil:
		s.goOn(c, lifecycle.Unpause{})
	case s.state.Phase != lifecycle.Paused || s.state.Operation != lifecycle.NoOperation:
		s.release(c, nil)
	}
}

func (s *sandbox) goOn(c actor.Context, command lifecycle.Command) {
	s.take(c, []*step{{command: command, done: func(err error) {
		if err != nil {
			s.release(c, err)
		}
	}}})
}

// release answers those who wait with err, or has them decided on as things are now.
func (s *sandbox) release(c actor.Context, err error) {
	held := s.held
	s.held, s.tried = nil, false
	for _, m := range held {
		if err != nil {
			m.reply(s.state, err)
			continue
		}
		s.enqueue(c, &step{command: m.command, exec: m.exec, requestID: m.requestID, done: func(err error) { m.reply(s.state, err) }})
	}
}
