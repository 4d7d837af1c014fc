package actors

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/runtime"
)

// exclusive asks for the sandbox's containers: do runs while no operation changes them.
type exclusive struct {
	ctx   context.Context
	do    func() error
	taken atomic.Bool // by the sandbox, which does it, or by the asker, who has left
	done  chan error  // one slot
}

// alone runs do while no operation changes the sandbox in the runtime: what is asked of the sandbox meanwhile is accepted and
// waits. do must be bounded. It returns when do has, or will not run.
func (s *System) alone(ctx context.Context, e *entry, pid *actor.PID, do func() error) error {
	m := &exclusive{ctx: ctx, do: do, done: make(chan error, 1)}
	s.actors.Root.Send(pid, m)
	var err error
	select {
	case err := <-m.done:
		return err
	case <-e.gone:
		err = fmt.Errorf("%w: %s", ErrNotFound, e.id)
	case <-s.ended:
		err = fmt.Errorf("%w: %s", runtime.ErrOutcomeUnknown, e.id)
	case <-ctx.Done():
		err = fmt.Errorf("sandbox %s is busy: %w", e.id, context.Cause(ctx))
	}
	if m.taken.Swap(true) {
		return <-m.done
	}
	return err
}

// admit has the next of those who wait and have not left do its work.
func (s *sandbox) admit(self *actor.PID) {
	for len(s.waiting) > 0 {
		m := s.waiting[0]
		s.waiting = s.waiting[1:]
		if m.taken.Swap(true) {
			continue
		}
		system, e := s.system, s.entry
		e.operation = &operation{token: system.tokens.Add(1), cancel: func() {}}
		ended := &operationEnded{token: e.operation.token, exclusive: true}
		system.work.Go(func() {
			err := m.ctx.Err()
			defer func() {
				if reason := recover(); reason != nil {
					err = system.panicked("exclusive use", e.id, reason)
				}
				system.actors.Root.Send(self, ended)
				m.done <- err
			}()
			if err == nil {
				err = m.do()
			}
		})
		return
	}
}

// dismiss answers those who wait.
func (s *sandbox) dismiss(err error) {
	for _, m := range s.waiting {
		if !m.taken.Swap(true) {
			m.done <- err
		}
	}
	s.waiting = nil
}

// settle has the sandbox begin nothing any more; settled is closed when nothing runs either.
type settle struct{ settled chan struct{} }

func (s *sandbox) settled() {
	select {
	case <-s.ending:
	default:
		close(s.ending)
	}
}
