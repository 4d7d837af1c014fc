package actors

import (
	"errors"
	"log/slog"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// recordRetry is how long a fact waits for another try when the log could not take it, as with a full disk.
const recordRetry = time.Second

// sandbox is the actor of one sandbox. It alone appends to the sandbox's log: decide, persist, apply, act,
// reply. What it does next follows from its state, so a restarted one carries on from the log.
type sandbox struct {
	system *System
	entry  *entry
	state  lifecycle.State
	// operation is the one that runs, nil when none does.
	operation *operation
	// stale: the primary may have ended since it was last looked at.
	stale bool
	execs map[string]*actor.PID
	idle  idleTimer
}

// primaryEnded tells that the primary container ended, or may have done so unseen.
type primaryEnded struct{}

func (s *sandbox) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.started(c)
	case *actor.Stopping, *actor.Restarting:
		s.idle.stop()
		if s.operation != nil {
			s.operation.cancel()
		}
	case *request:
		s.requested(c, m)
	case *progressed:
		if s.operation != nil && m.token == s.operation.token {
			s.happened(c, m, m.command)
		}
	case *operationEnded:
		if s.operation != nil && m.token == s.operation.token {
			s.operationEnded(c, m)
		}
	case *execEnded:
		s.happened(c, m, lifecycle.ExecEnded{ExecID: m.execID, Result: m.result})
	case *primaryEnded:
		s.stale = true
		s.act(c)
	case *idleExpired:
		if s.idle.expired(m) && s.state.Idle() {
			s.happened(c, m, lifecycle.Stop{Reason: lifecycle.ReasonIdleTTL})
		}
	}
}

// started carries on from the log: with the operation that it announced, or with a look at what became of the
// primary and of the commands that ran in it.
func (s *sandbox) started(c actor.Context) {
	s.execs = map[string]*actor.PID{}
	if state := s.entry.state.Load(); state != nil {
		s.state = *state
	}
	s.stale = s.state.Phase == lifecycle.Ready
	for id := range s.state.Running {
		exec, err := s.system.db.Exec(id)
		if err != nil {
			s.system.log.Error("running exec cannot be read", slog.String("exec_id", id), slog.Any("error", err))
			continue
		}
		s.runExec(c, exec.Request)
		if exec.CancelRequested {
			c.Send(s.execs[id], &cancelExec{})
		}
	}
	s.act(c)
}

func (s *sandbox) requested(c actor.Context, r *request) {
	if _, err := s.apply(r.command, persist.Entry{Create: r.create, StartExec: r.exec}); err != nil {
		r.reply(s.state, err)
		return
	}
	if r.exec != nil {
		s.runExec(c, r.exec)
	}
	if cancel, ok := r.command.(lifecycle.CancelExec); ok && s.execs[cancel.ExecID] != nil {
		c.Send(s.execs[cancel.ExecID], &cancelExec{})
	}
	s.act(c)
	r.reply(s.state, nil)
}

// happened takes in a fact that nobody waits for, and acts on it.
func (s *sandbox) happened(c actor.Context, message any, fact lifecycle.Command) {
	if s.record(c, message, fact) {
		s.act(c)
	}
}

// record applies facts. When the log cannot take them now it has message delivered again later and reports
// false; those that it took are ignored the second time.
func (s *sandbox) record(c actor.Context, message any, facts ...lifecycle.Command) bool {
	for _, fact := range facts {
		events, err := s.apply(fact, persist.Entry{})
		if _, refused := errors.AsType[*lifecycle.Refusal](err); err != nil && !refused {
			s.system.log.Error("event could not be recorded, trying again",
				slog.String("sandbox_id", s.entry.id), slog.Duration("after", recordRetry), slog.Any("error", err))
			if !errors.Is(err, persist.ErrClosed) {
				s.system.sendLater(c.Self(), message, recordRetry)
			}
			return false
		}
		s.endExecs(c, events)
	}
	return true
}

func (s *sandbox) operationEnded(c actor.Context, m *operationEnded) {
	if s.system.working.Err() != nil {
		return // the daemon ends: the log still announces the operation, and the next start carries it on
	}
	var facts []lifecycle.Command
	for id, result := range m.results {
		facts = append(facts, lifecycle.ExecEnded{ExecID: id, Result: result})
	}
	switch {
	case m.kind == lifecycle.NoOperation && m.err != nil:
		s.system.log.Warn("primary container could not be looked at",
			slog.String("sandbox_id", s.entry.id), slog.Any("error", m.err))
	case m.kind == lifecycle.NoOperation && !m.primary.Running:
		facts = append(facts, lifecycle.PrimaryDied{Code: lifecycle.CodeContainerNotRunning, Message: m.primary.Cause})
	case m.kind == lifecycle.NoOperation:
	case m.err != nil:
		facts = append(facts, failure(m.kind, m.err))
	default:
		facts = append(facts, lifecycle.OperationDone{Operation: m.kind})
	}
	// Until its end is recorded the operation counts as running, so that it is not launched again.
	if s.record(c, m, facts...) {
		s.operation = nil
		s.act(c)
	}
}

// apply decides, persists and folds. The log is what callers see: nothing happens before it is durable.
func (s *sandbox) apply(command lifecycle.Command, record persist.Entry) ([]*agboxv1.SandboxEvent, error) {
	now := time.Now()
	events, err := lifecycle.Decide(s.state, command, now)
	if err != nil {
		return nil, err
	}
	if cancel, ok := command.(lifecycle.CancelExec); ok {
		record.CancelExec = cancel.ExecID
	} else if len(events) == 0 {
		return nil, nil
	}
	record.SandboxID, record.After, record.Events, record.At = s.entry.id, s.state.Sequence, events, now
	if err := s.system.db.Append(record); err != nil {
		return nil, err
	}
	for _, event := range events {
		s.state = lifecycle.Fold(s.state, event)
	}
	state := s.state
	s.entry.state.Store(&state)
	return events, nil
}

// act does what the state now asks for.
func (s *sandbox) act(c actor.Context) {
	switch {
	case s.operation != nil:
		if s.operation.kind != s.state.Operation {
			s.operation.cancel() // its end brings us back here
		}
	case s.state.Operation != lifecycle.NoOperation:
		s.operation = s.system.launch(s.entry, c.Self(), s.state.Operation)
	case s.stale && s.state.Phase == lifecycle.Ready:
		s.stale = false
		s.operation = s.system.launch(s.entry, c.Self(), lifecycle.NoOperation)
	}
	s.idle.set(s.system, c.Self(), s.state, s.entry.spec)
}

func (s *sandbox) runExec(c actor.Context, request *agboxv1.CreateExecRequest) {
	props := actor.PropsFromProducer(func() actor.Actor { return &exec{system: s.system, request: request} })
	pid, err := c.SpawnNamed(props, "x-"+request.ExecId)
	if err != nil {
		s.system.log.Error("exec cannot be followed", slog.String("exec_id", request.ExecId), slog.Any("error", err))
		return
	}
	s.execs[request.ExecId] = pid
}

// endExecs lets go of the execs whose end is in the log now.
func (s *sandbox) endExecs(c actor.Context, events []*agboxv1.SandboxEvent) {
	for _, event := range events {
		switch event.EventType {
		case agboxv1.EventType_EXEC_FINISHED, agboxv1.EventType_EXEC_FAILED, agboxv1.EventType_EXEC_CANCELLED:
			id := event.GetExec().GetExecId()
			s.system.runtime.ExecRecorded(s.entry.id, id)
			if pid := s.execs[id]; pid != nil {
				delete(s.execs, id)
				c.Stop(pid)
			}
		}
	}
}
