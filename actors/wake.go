package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// holds reports whether an exec has to wait: the sandbox was paused because it was idle, and the exec wakes it.
func (s *sandbox) holds(m *request) bool {
	if _, exec := m.command.(lifecycle.StartExec); !exec {
		return false
	}
	idle := s.state.Reason == lifecycle.ReasonIdleTTL
	return idle && (s.state.Phase == lifecycle.Paused || s.state.Operation == lifecycle.Pausing) ||
		len(s.held) > 0 && s.state.Operation == lifecycle.Unpausing
}

// hold keeps the exec until the sandbox goes on. Those who wait are bounded by the requests that are served at once.
func (s *sandbox) hold(c actor.Context, m *request) {
	s.held = append(s.held, m)
	s.wake(c)
}

// wake has the sandbox go on when an exec waits for that, and lets the execs go when it does, or will not.
func (s *sandbox) wake(c actor.Context) {
	if len(s.held) == 0 {
		return
	}
	switch {
	case s.state.Operation == lifecycle.Pausing, s.state.Operation == lifecycle.Unpausing:
	case s.state.Phase == lifecycle.Paused && s.state.Operation == lifecycle.NoOperation && s.operation == nil:
		s.take(c, []*step{{command: lifecycle.Unpause{}, done: func(err error) {
			if err != nil {
				s.release(c, err)
			}
		}}})
	case s.state.Phase != lifecycle.Paused || s.state.Operation != lifecycle.NoOperation:
		s.release(c, nil)
	}
}

// release answers those who wait with err, or has them decided on as things are now.
func (s *sandbox) release(c actor.Context, err error) {
	held := s.held
	s.held = nil
	for _, m := range held {
		if err != nil {
			m.reply(s.state, err)
			continue
		}
		s.enqueue(c, &step{command: m.command, exec: m.exec, requestID: m.requestID, done: func(err error) { m.reply(s.state, err) }})
	}
}
