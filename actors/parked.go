package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// park keeps the use until the sandbox goes on. Those who wait are bounded by the requests that are served at once.
func (s *sandbox) park(c actor.Context, m *request) {
	s.parked = append(s.parked, m)
	s.tried = s.tried || s.state.Making()
	s.wake(c)
}

// wake has the sandbox go on when a use waits for that, and lets those go that need not wait any more. All that wait
// together share one try.
func (s *sandbox) wake(c actor.Context) {
	waiting := s.parked[:0:0]
	for _, m := range s.parked {
		if s.policy().Waits(s.state, m.command) {
			waiting = append(waiting, m)
		} else {
			s.enqueue(c, m.step())
		}
	}
	s.parked = waiting
	if len(waiting) == 0 {
		s.tried = false
		return
	}
	switch command := s.state.Wake(); {
	case command == nil || s.entry.operation != nil:
	case s.tried:
		s.release(lifecycle.NotReady(s.state))
	default:
		s.tried = true
		s.take(c, []*step{{command: command, done: func(err error) {
			if err != nil {
				s.release(err)
			}
		}}})
	}
}

// release answers all who wait with err.
func (s *sandbox) release(err error) {
	parked := s.parked
	s.parked, s.tried = nil, false
	for _, m := range parked {
		m.reply(answer{state: s.state, err: err})
	}
}
