package actors

import (
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/pool"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// takeWarm looks for a sandbox that was made ahead and that e can take.
func (s *System) takeWarm(e *entry) {
	taken, whyNot := s.pool.Take(e.spec)
	if e.miss = whyNot; taken.ID != "" {
		e.taken, e.place = &taken, taken.ID
	}
}

// settleWarm ends what takeWarm has begun: the sandbox was accepted, or nothing came of it.
func (s *System) settleWarm(e *entry, accepted bool) {
	taken := e.taken
	e.taken = nil
	switch {
	case taken != nil && !accepted:
		s.runtime.Release(e.id, taken.ID)
		s.pool.Return(*taken)
	case taken != nil && s.pool.Used(*taken):
		s.actors.Root.Send(e.pid, &containerEnded{})
	}
	if accepted && e.madeFrom == "" {
		s.pool.Created(e.spec)
	}
}

// occupied tells that a sandbox could not make the place its own that it took.
type occupied struct{ err error }

// occupy makes the place the sandbox's that its log says it took.
func (s *sandbox) occupy(c actor.Context) {
	if s.entry.place == "" || s.state.Phase == lifecycle.None || s.state.Phase == lifecycle.Deleted {
		return
	}
	if err := s.system.runtime.Occupy(s.entry.id, s.entry.place, s.entry.spec); err != nil {
		s.system.log.Error("a sandbox that was made ahead cannot be used", slog.String("sandbox_id", s.entry.id), slog.Any("error", err))
		c.Send(c.Self(), &occupied{err})
	}
}

// unoccupied fails a sandbox that is at no place, but one that is still being made: that tries again.
func (s *sandbox) unoccupied(c actor.Context, m *occupied) {
	s.givenUp = s.state.Up()
	s.take(c, []*step{s.fact(c.Self(), m, lifecycle.Died{Code: lifecycle.CodeCreateFailed, Message: m.err.Error()})})
}

// Pool tells what is made ahead, by class, and how many creates took none, by why.
func (s *System) Pool() (classes []*agboxv1.PoolClass, misses map[string]uint64) {
	return s.pool.Census()
}

// newPool makes the pool, which begins with Start.
func (s *System) newPool() *pool.Pool {
	return pool.New(s.config.Pool, s.runtime, s.now, s.log)
}

// lostWarm tells the pool of what is at one of its places.
func (s *System) lostWarm(id, why string) bool {
	if !runtime.IsPlace(id) {
		return false
	}
	s.pool.Lost(id, why)
	return true
}
