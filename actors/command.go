package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// runCommand waits for the end of the primary's own command, which runs as long as the sandbox does.
func (s *sandbox) runCommand(c actor.Context) {
	if s.execs[runtime.CommandID] != nil || !s.system.policy(s.entry.spec).FollowsCommand(s.state) {
		return
	}
	s.entry.crashed.Store(false)
	s.runExec(c, &agboxv1.CreateExecRequest{SandboxId: s.entry.id, ExecId: runtime.CommandID, Command: s.entry.spec.Command})
}

// commandEnded records the end, or has the sandbox halted first when that is its failure: then no exec runs any more
// when it is told.
func (s *sandbox) commandEnded(c actor.Context, m *execEnded) {
	if !s.system.policy(s.entry.spec).HaltsOnCommandEnd() {
		s.take(c, []*step{s.fact(c.Self(), m, lifecycle.CommandEnded{Result: m.result})})
		return
	}
	s.entry.crashed.Store(true)
	s.stale = true
	s.act(c)
}
