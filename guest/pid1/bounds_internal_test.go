package pid1

import (
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/process"
	"github.com/agbox-dev/agbox/guest/protocol"
)

// A start that is over before the lookup was asked about it is not asked about any more.
func TestQuestionGoesWithItsStart(t *testing.T) {
	s := &sandbox{options: options{startLimit: time.Minute}, running: map[*execution]struct{}{}}
	var last *execution
	for range 1000 {
		last = newExecution("")
		s.begin(last, &starting{Exec: &protocol.Exec{}, descriptors: noDescriptors}, "")
		if len(s.questions) != 1 {
			t.Fatalf("%d questions", len(s.questions))
		}
		s.cancel(last, 0)
	}
	if len(s.questions) > 0 || len(s.running) > 0 {
		t.Errorf("%d questions, %d executions", len(s.questions), len(s.running))
	}
}

// A family that is looked at, and that goes from session to session, is remembered by what lives of it.
func TestFamilyForgetsSessions(t *testing.T) {
	s, e := &sandbox{}, newExecution("")
	e.pid = 10
	leader := process.Process{PID: 10, Parent: 1, Session: 10, Started: 1}
	s.adopt(e, []process.Process{leader})
	for pid := 100; pid < 1000; pid++ {
		hop := process.Process{PID: pid, Parent: 10, Session: pid, Started: uint64(pid)}
		orphan := process.Process{PID: pid + 10_000, Parent: 1, Session: pid, Started: uint64(pid)}
		s.adopt(e, []process.Process{leader, hop, orphan})
		s.adopt(e, []process.Process{leader, orphan})
		if e.members[orphan.PID] != orphan.Started {
			t.Fatalf("%d, in the session of %d, is not of the family", orphan.PID, pid)
		}
	}
	if len(e.sessions) > 5 || len(e.members) > 5 {
		t.Errorf("%d sessions, %d members", len(e.sessions), len(e.members))
	}
}
