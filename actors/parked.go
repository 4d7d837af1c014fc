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

// wake has the sandbox go on when a use waits for that, and lets the uses go when it does, or will not. All that wait
// together share one try.
func (s *sandbox) wake(c actor.Context) {
	if len(s.parked) == 0 {
		return
	}
	switch command := s.state.Wake(); {
	case command == nil && !s.state.Waits(lifecycle.StartExec{}):
		s.release(c, nil)
	case command == nil || s.entry.operation != nil:
	case s.tried:
		s.release(c, lifecycle.NotReady(s.state))
	default:
		s.tried = true
		s.take(c, []*step{{command: command, done: func(err error) {
			if err != nil {
				s.release(c, err)
			}
		}}})
	}
}

// release answers those who wait with err, or has them decided on as things are now.
func (s *sandbox) release(c actor.Context, err error) {
	parked := s.parked
	s.parked, s.tried = nil, false
	for _, m := range parked {
		if err != nil {
			m.reply(answer{state: s.state, err: err})
			continue
		}
		s.enqueue(c, m.step())
	}
}
