package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
)

// execEnded is how a command ended.
type execEnded struct {
	execID string
	result runtime.ExecResult
}

// execEnded has the end of a command recorded, with what else waits for the log.
func (s *sandbox) execEnded(c actor.Context, m *execEnded) {
	s.enqueue(c, s.fact(c.Self(), m, lifecycle.ExecEnded{ExecID: m.execID, Result: m.result}))
}

// commandEnded records the end of the primary's own command, or has the sandbox halted first when that is its failure: then no
// exec runs any more when it is recorded.
func (s *sandbox) commandEnded(c actor.Context, m *execEnded) {
	if !s.policy().HaltsOnCommandEnd() {
		s.take(c, []*step{s.fact(c.Self(), m, lifecycle.CommandEnded{Result: m.result})})
		return
	}
	s.commandOver = true
	s.stale = true
	s.act(c)
}

// endExec lets go of an exec whose end is in the log now.
func (s *sandbox) endExec(c actor.Context, execID string) {
	s.system.runtime.ExecRecorded(s.entry.id, execID)
	if pid := s.execs[execID]; pid != nil {
		delete(s.execs, execID)
		c.Stop(pid)
	}
}
