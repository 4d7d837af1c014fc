package actors

import (
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// A fact waits so long for another try when the log could not take it, as with a full disk: longer with each try, and not as
// long as other sandboxes.
const (
	firstRecordRetry = time.Second
	lastRecordRetry  = 30 * time.Second
)

// checkpointEvery is how many events of a log are folded at most when a sandbox is loaded.
const checkpointEvery = 256

// step is a command on its way into the log.
type step struct {
	command lifecycle.Command
	create  *agboxv1.CreateSpec
	exec    *agboxv1.CreateExecRequest
	// requestID marks create or exec.
	requestID string
	capture   *capture
	// place is what create takes.
	place string
	// done is told what became of it: nil once it is durable and acted on, a *lifecycle.Refusal, or an error of
	// the log. May be nil.
	done func(error)

	events []*agboxv1.SandboxEvent
	after  lifecycle.State
	// entry is what to record, with no sandbox id when the command leaves no trace.
	entry persist.Entry
	err   error
}

// batch collects the steps that wait in the mailbox together, so that a burst costs few transactions.
type batch struct{ steps []*step }

// enqueue has the step taken with all others that are waiting by now.
func (s *sandbox) enqueue(c actor.Context, st *step) {
	if s.batch == nil {
		s.batch = &batch{}
		c.Send(c.Self(), s.batch)
	}
	s.batch.steps = append(s.batch.steps, st)
}

// flush takes what was enqueued. When that crashes, everybody who waits for it hears so.
func (s *sandbox) flush(c actor.Context) {
	if s.batch == nil {
		return
	}
	steps := s.batch.steps
	defer func() {
		if reason := recover(); reason != nil {
			abandon(steps)
			panic(reason)
		}
	}()
	s.batch = nil
	s.take(c, steps)
}

// abandon answers for steps that a crash has caught.
func abandon(steps []*step) {
	for _, st := range steps {
		if st.done != nil {
			st.done(errCrashed)
		}
	}
}

// take decides, persists, applies, acts and replies, in that order. The log is what callers see: nothing happens
// before it is durable. Whoever waits for a step that came to nothing hears so before acting tries anything again.
func (s *sandbox) take(c actor.Context, steps []*step) {
	for rest := steps; len(rest) > 0; {
		rest = s.record(c, rest)
	}
	reply(steps, func(st *step) bool { return st.err != nil })
	s.act(c)
	reply(steps, func(st *step) bool { return st.err == nil })
}

func reply(steps []*step, which func(*step) bool) {
	for _, st := range steps {
		if st.done != nil && which(st) {
			st.done(st.err)
		}
	}
}

// record takes steps in one transaction and returns those that must be decided anew, because they were decided as
// if one had been recorded that was not.
func (s *sandbox) record(c actor.Context, steps []*step) []*step {
	decided := s.state
	var entries []persist.Entry
	for _, st := range steps {
		s.decide(st, decided)
		decided = st.after
		if st.entry.SandboxID != "" {
			entries = append(entries, st.entry)
		}
	}
	panicPoint()
	errs := s.system.db.AppendAll(entries)
	panicPoint()
	for i, st := range steps {
		if st.entry.SandboxID == "" {
			continue
		}
		st.err, errs = errs[0], errs[1:]
		if st.err != nil {
			if s.rejoin(c) && errors.Is(st.err, persist.ErrConflict) {
				return steps[i:]
			}
			return steps[i+1:]
		}
		s.records.Reset()
		s.apply(c, st)
	}
	return nil
}

// rejoin takes in what the log holds beyond the state, as if it had been recorded just now, and reports whether there was
// anything: a write that failed when it was synced can be in the log all the same.
func (s *sandbox) rejoin(c actor.Context) bool {
	known := s.state.Sequence
	for {
		events, err := s.system.db.Events(s.entry.id, s.state.Sequence, replayChunk)
		if err != nil {
			break // what follows fails in the same way, and says so
		}
		for _, event := range events {
			st := &step{events: []*agboxv1.SandboxEvent{event}, after: lifecycle.Fold(s.state, event)}
			if event.EventType == agboxv1.EventType_EXEC_STARTED {
				if exec, err := s.system.db.Exec(s.entry.id, event.GetExec().GetExecId()); err == nil {
					st.exec = exec.Request
				}
			}
			s.apply(c, st)
		}
		if len(events) < replayChunk {
			break
		}
	}
	if s.state.Sequence == known {
		return false
	}
	s.system.log.Warn("audit: the log was ahead of its sandbox", slog.String("sandbox_id", s.entry.id),
		slog.Uint64("known", known), slog.Uint64("last_sequence", s.state.Sequence))
	return true
}

func (s *sandbox) decide(st *step, state lifecycle.State) {
	now := s.system.now()
	st.after, st.entry = state, persist.Entry{}
	if st.events, st.err = lifecycle.Decide(state, s.policy(), st.command, now); st.err != nil {
		return
	}
	cancel, _ := st.command.(lifecycle.CancelExec)
	if len(st.events) == 0 && cancel.ExecID == "" {
		return
	}
	st.after = lifecycle.Fold(state, st.events...)
	st.entry = persist.Entry{
		SandboxID: state.SandboxID, After: state.Sequence, Events: st.events, At: now,
		Create: st.create, StartExec: st.exec, RequestID: st.requestID, Place: st.place, CancelExec: cancel.ExecID,
	}
	if trimTo := s.surplus(st.after.Sequence); trimTo > 0 || state.Sequence/checkpointEvery != st.after.Sequence/checkpointEvery {
		st.entry.Checkpoint, st.entry.TrimTo = st.after.State, trimTo
	}
}

// surplus returns the sequence up to which events are too many, 0 while none are. They go some at a time.
func (s *sandbox) surplus(newest uint64) uint64 {
	limit := s.system.config.MaxEvents
	if limit == 0 || newest-s.trimmed <= limit+limit/10 {
		return 0
	}
	return newest - limit
}

// apply makes a recorded step the sandbox's state, and starts or lets go of the execs that it is about.
func (s *sandbox) apply(c actor.Context, st *step) {
	s.state = st.after
	s.entry.state.Store(&st.after)
	if st.entry.TrimTo > s.trimmed {
		s.trimmed = st.entry.TrimTo
		s.system.send(nameJanitor, &trimmed{})
	}
	if st.exec != nil {
		s.runExec(c, st.exec)
	}
	if snapshot, ok := st.command.(lifecycle.Snapshot); ok {
		s.captures[snapshot.ID] = st.capture
	}
	if cancel, ok := st.command.(lifecycle.CancelExec); ok && s.execs[cancel.ExecID] != nil {
		c.Send(s.execs[cancel.ExecID], &cancelExec{})
	}
	for _, event := range st.events {
		switch event.EventType {
		case agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
			s.endExec(c, event.GetExec().GetExecId())
		case agboxv1.EventType_SANDBOX_COMMAND_ENDED, agboxv1.EventType_SANDBOX_STOPPED,
			agboxv1.EventType_SANDBOX_FAILED, agboxv1.EventType_SANDBOX_DELETED, agboxv1.EventType_SANDBOX_RESTARTING:
			if s.execs[runtime.CommandID] != nil {
				s.endExec(c, runtime.CommandID)
			}
			if event.EventType == agboxv1.EventType_SANDBOX_DELETED && s.entry.place != "" {
				s.system.runtime.Release(s.entry.id, s.entry.place)
			}
		case agboxv1.EventType_SANDBOX_SNAPSHOT_MADE, agboxv1.EventType_SANDBOX_SNAPSHOT_FAILED:
			s.captured(event.GetSnapshotDetails())
		case agboxv1.EventType_SANDBOX_ACCEPTED:
			s.occupy(c)
		case agboxv1.EventType_SANDBOX_READY:
			s.runCommand(c)
		case agboxv1.EventType_SANDBOX_RECOVERED:
			s.stale = true
			s.runCommand(c)
		}
	}
}

// fact is a step that nobody waits for. When the log cannot take it now, message is delivered again later; a fact
// that was taken is ignored the second time.
func (s *sandbox) fact(self *actor.PID, message any, command lifecycle.Command) *step {
	return &step{command: command, done: func(err error) {
		if _, refused := errors.AsType[*lifecycle.Refusal](err); err == nil || refused {
			return
		}
		delay := s.nextRecord()
		s.system.log.Error("event could not be recorded, trying again",
			slog.String("sandbox_id", s.entry.id), slog.Duration("after", delay), slog.Any("error", err))
		if !errors.Is(err, persist.ErrClosed) {
			s.system.sendLater(self, message, delay)
		}
	}}
}

// nextRecord is how long until facts are tried again, all that wait at the same time.
func (s *sandbox) nextRecord() time.Duration {
	now := time.Now()
	if !now.Before(s.recordAt) {
		s.recordAt = now.Add(s.records.NextBackOff())
	}
	return s.recordAt.Sub(now)
}
