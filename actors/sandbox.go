package actors

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
)

// sandbox is the actor of one sandbox. It alone appends to the sandbox's log. What it does next follows from its
// state, so a restarted one carries on from the log.
type sandbox struct {
	system *System
	entry  *entry
	state  lifecycle.State
	// batch is what waits to be taken, nil when nothing does.
	batch *batch
	// waiting are those who want the containers for themselves, in turn.
	waiting []*exclusive
	// captures are those who wait for the snapshots that are on their way, by id.
	captures map[string]*capture
	// ending is closed when no operation runs any more, and none begins; nil while the daemon goes on.
	ending chan struct{}
	// stale: a container may have ended since they were last looked at. looks spaces the looks that failed, and
	// lookAgain is true while one waits for its time.
	stale bool
	// commandOver: the primary's own command ended, and that is the sandbox's failure. givenUp: its containers are to be stopped.
	// appeared: an object of the sandbox was made since its removal began.
	commandOver, givenUp, appeared bool

	looks *backoff.ExponentialBackOff
	// records spaces the tries to record facts that the log could not take, the next of which is at recordAt.
	records   *backoff.ExponentialBackOff
	recordAt  time.Time
	lookAgain bool
	// execs are the actors of the running commands, the primary's own included.
	execs map[string]*actor.PID
	// serving are the optional services that are being started, by name, with what ends the waiting for them.
	serving map[string]context.CancelFunc
	// parked are the uses that wait until the sandbox, which was idle and paused, or never made, goes on; tried: that was begun
	// for them.
	parked []*request
	tried  bool
	// trimmed is the sequence up to which events were removed.
	trimmed uint64
	// alarm is for what lifecycle.Next has for the sandbox, whose times come from the log, so that a restart neither shortens nor
	// prolongs them; rang is the sequence at which it rang, 0 while it has not.
	alarm *alarm
	rang  uint64
}

// giveUp has a sandbox that crashes again and again give itself up.
type giveUp struct{}

// containerEnded tells that a container of the sandbox ended, or may have done so unseen; lookDue, that it is time to look
// once more.
type (
	containerEnded struct{}
	lookDue        struct{}
)

// appeared tells that an object of the sandbox was made.
type appeared struct{}

// linkLost tells that the program inside the sandbox cannot be reached.
type linkLost struct{ why string }

func (s *sandbox) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *request:
		if s.policy().Waits(s.state, m.command) {
			s.park(c, m)
			return
		}
		s.enqueue(c, m.step())
		return
	case *execEnded:
		if m.execID != runtime.CommandID {
			s.execEnded(c, m)
			return
		}
	}
	if _, crashed := c.Message().(*actor.Restarting); crashed {
		s.release(errCrashed)
		if s.batch != nil {
			abandon(s.batch.steps)
			s.batch = nil
		}
		s.dismiss(errCrashed)
		s.dismissCaptures(errCrashed)
	}
	s.flush(c) // what came first is taken first
	switch m := c.Message().(type) {
	case *actor.Started:
		s.started(c)
	case *actor.Stopping, *actor.Restarting:
		s.alarm.stop()
		s.stopServing(nil)
		if op := s.entry.operation; op != nil {
			op.abandoned = true
			op.cancel()
		}
	case *execEnded:
		s.commandEnded(c, m)
	case *served:
		s.served(c, m)
	case *progressed:
		if op := s.entry.operation; op != nil && m.token == op.token && !op.abandoned {
			s.take(c, []*step{s.fact(c.Self(), m, m.command)})
		}
	case *operationEnded:
		s.operationEnded(c, m)
	case *snapshotEnded:
		s.snapshotEnded(c, m)
	case *exclusive:
		s.waiting = append(s.waiting, m)
		s.act(c)
	case *settle:
		s.ending = m.settled
		s.act(c)
	case *appeared:
		s.appeared = true
		if s.state.Phase == lifecycle.Deleted { // after the removal had looked for the last time
			s.system.send(nameReconciler, &reconcile{})
		}
	case *giveUp:
		if reason := s.entry.quarantine.Load(); reason != nil {
			s.take(c, []*step{s.fact(c.Self(), m, lifecycle.Quarantined{Message: *reason})})
		}
	case *containerEnded:
		s.stale = true
		s.act(c)
	case *linkLost:
		s.stale = true
		s.take(c, []*step{s.fact(c.Self(), m, lifecycle.LinkLost{Message: m.why})})
	case *lookDue:
		s.lookAgain, s.stale = false, true
		s.act(c)
	case *alarm:
		s.ring(c, m)
	case *occupied:
		s.unoccupied(c, m)
	case *presenceChanged:
		s.act(c)
	}
}

// started carries on from the log: with the operation that it announced, or with a look at what became of the
// primary and of the commands that ran in it.
func (s *sandbox) started(c actor.Context) {
	s.execs, s.captures = map[string]*actor.PID{}, map[string]*capture{}
	s.looks = newBackoff()
	s.records = newBackoff()
	s.records.InitialInterval, s.records.MaxInterval = firstRecordRetry, lastRecordRetry
	s.records.Reset()
	s.serving = map[string]context.CancelFunc{}
	if op := s.entry.operation; op != nil && op.over {
		s.entry.operation = nil
	}
	s.catchUp()
	s.occupy(c)
	if oldest, _, err := s.system.db.Bounds(s.entry.id); err == nil {
		s.trimmed = oldest - 1
	}
	if reason := s.entry.quarantine.Load(); reason != nil {
		s.take(c, []*step{s.fact(c.Self(), &giveUp{}, lifecycle.Quarantined{Message: *reason})})
		s.givenUp = true
		s.act(c)
		return
	}
	s.stale = s.state.Up()
	for id := range s.state.Running {
		if !s.state.Up() {
			break // whoever removes the sandbox tells their end
		}
		exec, err := s.system.db.Exec(s.entry.id, id)
		if err != nil {
			s.system.log.Error("running exec cannot be read", slog.String("exec_id", id), slog.Any("error", err))
			continue
		}
		s.runExec(c, exec.Request)
		if exec.CancelRequested {
			c.Send(s.execs[id], &cancelExec{})
		}
	}
	s.runCommand(c)
	s.act(c)
}

// catchUp takes in what the log holds beyond the state that readers see: a crash may have come in between.
func (s *sandbox) catchUp() {
	seen := s.entry.state.Load()
	if seen == nil {
		return
	}
	s.state = *seen
	state, err := catchUp(s.system.db, *seen)
	if err != nil {
		if !errors.Is(err, persist.ErrNoSandbox) {
			s.system.log.Error("log cannot be read", slog.String("sandbox_id", s.entry.id), slog.Any("error", err))
		}
		return
	}
	s.state = state
	s.entry.state.Store(&state)
	for id := range seen.Running {
		if _, running := state.Running[id]; !running {
			s.system.runtime.ExecRecorded(s.entry.id, id)
		}
	}
	if state.Phase == lifecycle.Deleted {
		s.system.send(nameJanitor, &deleted{})
	}
}

func (s *sandbox) operationEnded(c actor.Context, m *operationEnded) {
	if s.system.working.Err() != nil {
		return // the daemon ends: the log still announces the operation, and the next start carries it on
	}
	op := s.entry.operation
	if op == nil || m.token != op.token {
		return
	}
	op.over = true
	removed := m.ended.Operation == lifecycle.Removing && m.err == nil
	if op.abandoned || m.exclusive || removed && s.appeared { // what appeared is removed as well
		s.entry.operation = nil
		s.act(c)
		return
	}
	var steps []*step
	for _, fact := range lifecycle.Facts(s.state, s.policy(), m.ended) {
		steps = append(steps, s.fact(c.Self(), m, fact))
	}
	look := m.ended.Operation == lifecycle.NoOperation
	if look && m.err != nil && s.state.Operation == lifecycle.NoOperation { // else it was given up for what was asked for meanwhile
		s.lookLater(c.Self(), m.err)
	}
	for rest := steps; len(rest) > 0; {
		rest = s.record(c, rest)
	}
	// Until its end is recorded the operation counts as running, so that it is not launched again.
	for _, st := range steps {
		if st.err != nil {
			st.done(st.err)
			return
		}
	}
	s.entry.operation = nil
	switch {
	case look && s.state.Operation != lifecycle.NoOperation:
		s.stale = true
	case m.ended.Operation == lifecycle.Pausing || m.ended.Operation == lifecycle.Unpausing:
		s.stale = s.stale || m.err != nil // the container may be gone
	}
	if look && m.err == nil {
		s.looks.Reset()
	}
	s.act(c)
	if s.state.Phase == lifecycle.Deleted {
		s.system.send(nameJanitor, &deleted{})
	}
}

// lookLater has the containers looked at once more: what became of them is not known before that was seen.
func (s *sandbox) lookLater(self *actor.PID, err error) {
	if s.lookAgain {
		return
	}
	delay := s.looks.NextBackOff()
	s.system.log.Warn("containers could not be looked at, trying again",
		slog.String("sandbox_id", s.entry.id), slog.Duration("after", delay), slog.Any("error", err))
	s.lookAgain = true
	s.system.sendLater(self, &lookDue{}, delay)
}

// act does what the state now asks for.
func (s *sandbox) act(c actor.Context) {
	switch op := s.entry.operation; {
	case op != nil:
		if !op.snapshot && s.state.Operation != lifecycle.NoOperation && op.kind != s.state.Operation {
			op.cancel() // its end brings us back here
		}
	case s.ending != nil:
		s.settled()
	case s.givenUp:
		s.givenUp = false
		s.system.launch(s.entry, c.Self(), lifecycle.Stopping, false)
	case s.state.Begun(s.system.now()):
		s.appeared = false
		s.system.launch(s.entry, c.Self(), s.state.Operation, false)
	case s.stale && s.state.Up():
		s.stale = false
		s.system.launch(s.entry, c.Self(), lifecycle.NoOperation, s.commandOver)
	default:
		if s.admit(c.Self()); s.entry.operation == nil {
			s.capture(c.Self())
		}
	}
	s.wake(c)
	s.serve(c)
	s.setAlarm(c)
}
