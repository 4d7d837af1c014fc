package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
)

// operation is work on the runtime that goes on outside its actor, of which a sandbox has one at a time: that which its log
// announces, a look at its containers, or what somebody else does with them.
type operation struct {
	token uint64
	kind  lifecycle.Operation // NoOperation for what is none of these
	// snapshot: it makes one, and what is asked for meanwhile waits.
	snapshot bool
	cancel   context.CancelFunc
	// over: its end was delivered. abandoned: the actor that began it has crashed, and its end tells nothing.
	over, abandoned bool
}

// operationEnded comes back from every operation, whatever happened to it.
type operationEnded struct {
	token uint64
	// exclusive: it was somebody else's work, and tells nothing.
	exclusive bool
	ended     lifecycle.Ended
	err       error
}

// progressed is an operation's progress.
type progressed struct {
	token   uint64
	command lifecycle.Command
}

// launch runs the operation in a goroutine of its own. The kind NoOperation observes the sandbox, and halts one that has died,
// or any with halt.
func (s *System) launch(e *entry, pid *actor.PID, kind lifecycle.Operation, halt bool) {
	ctx, cancel := context.WithCancel(s.working)
	e.operation = &operation{token: s.tokens.Add(1), kind: kind, cancel: cancel}
	ended := &operationEnded{token: e.operation.token, ended: lifecycle.Ended{Operation: kind, Halted: halt}}
	life := e.state.Load().Life()
	s.work.Go(func() {
		defer cancel()
		s.perform(ctx, e, pid, life, ended)
	})
}

// perform does the operation and sends its end, also when it panics.
func (s *System) perform(ctx context.Context, e *entry, pid *actor.PID, life string, ended *operationEnded) {
	defer func() {
		if reason := recover(); reason != nil {
			ended.fail(s.panicked(lifecycle.Verb(ended.ended.Operation), e.id, reason))
		}
		s.actors.Root.Send(pid, ended)
	}()
	reported := map[runtime.Progress]bool{}
	var mu sync.Mutex
	err := s.retryWhileUnreachable(ctx, func() error {
		return s.operate(ctx, e, life, &ended.ended, func(p runtime.Progress) {
			mu.Lock()
			known := reported[p] // by an earlier try
			reported[p] = true
			mu.Unlock()
			if !known {
				s.actors.Root.Send(pid, &progressed{token: ended.token, command: lifecycle.Progressed(p)})
			}
		})
	})
	ended.fail(err)
	ended.ended.Execs = s.recordedResults(e)
	if result, found := s.runtime.ExecRecord(e.id, runtime.CommandID); found && len(e.spec.GetCommand()) > 0 {
		ended.ended.Command = &result
	}
}

// fail sets what the operation came to nothing for; nil changes nothing.
func (m *operationEnded) fail(err error) {
	if m.err = err; err != nil {
		m.ended.Failed, m.ended.Message, m.ended.Code = true, err.Error(), errorCode(err)
	}
}

// panicked audits a panic outside of an actor and returns the error for those concerned.
func (s *System) panicked(what, id string, reason any) error {
	s.log.Error("audit: panic", slog.String("in", what), slog.String("id", id), slog.Any("reason", reason),
		slog.String("stack", string(debug.Stack())))
	return fmt.Errorf("agboxd crashed in %s: %v: its log has the stack", what, reason)
}

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

func newBackoff() *backoff.ExponentialBackOff {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	return wait
}

// retryWhileUnreachable does what it is given until the engine answers, or ctx ends: an engine that is gone for a while is
// a pause and no failure.
func (s *System) retryWhileUnreachable(ctx context.Context, do func() error) error {
	wait := newBackoff()
	for {
		err := do()
		if err == nil || !errors.Is(err, runtime.ErrUnreachable) || ctx.Err() != nil {
			return err
		}
		delay := wait.NextBackOff()
		s.log.Warn("the engine does not answer, trying again", slog.Duration("after", delay), slog.Any("error", err))
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return err
		}
	}
}

func (s *System) operate(ctx context.Context, e *entry, life string, ended *lifecycle.Ended, report func(runtime.Progress)) (err error) {
	var started runtime.Started
	ctx = runtime.WithTurn(ctx, s.turn(e, ended.Operation))
	switch ended.Operation {
	case lifecycle.Creating:
		ctx = runtime.WithMiss(ctx, e.miss)
		started, err = s.runtime.Create(ctx, e.id, life, e.spec, report)
	case lifecycle.Resuming:
		started, err = s.runtime.Resume(ctx, e.id, life, e.spec, report)
	case lifecycle.Restarting:
		started, err = s.runtime.Restart(ctx, e.id, life, e.spec, report)
	case lifecycle.Stopping:
		var grace *time.Duration
		if set := e.state.Load().Grace; set != nil {
			grace = new(set.AsDuration())
		}
		err = s.runtime.Stop(ctx, e.id, grace)
	case lifecycle.Killing:
		err = s.runtime.Halt(ctx, e.id)
	case lifecycle.Pausing:
		err = s.runtime.Pause(ctx, e.id, e.spec)
	case lifecycle.Unpausing:
		err = s.runtime.Unpause(ctx, e.id, e.spec)
	case lifecycle.Removing:
		err = s.runtime.Remove(ctx, e.id)
	default:
		return s.look(ctx, e, ended)
	}
	ended.Ports = started.Ports
	return err
}

// look observes the sandbox, and halts one that has died, or any that is to be halted.
func (s *System) look(ctx context.Context, e *entry, ended *lifecycle.Ended) error {
	halt := ended.Halted
	ended.Halted = false // as long as nothing is
	seen, err := s.runtime.Observe(ctx, e.id, e.spec)
	if err != nil {
		return err
	}
	ended.Gone, ended.Lost, ended.Halted = !seen.Alive, seen.Lost, halt
	if !ended.Gone && !ended.Halted {
		return nil
	}
	if err := s.runtime.Halt(ctx, e.id); err != nil {
		s.log.Warn("a sandbox that failed could not be halted", slog.String("sandbox_id", e.id), slog.Any("error", err))
	}
	if ended.Gone { // an engine hears that memory ran out a moment after the end that it led to
		if again, err := s.runtime.Observe(ctx, e.id, e.spec); err == nil && again.Code == seen.Code {
			seen = again
		}
		ended.Code, ended.Message = seen.Code, seen.Cause
	}
	return nil
}

// recordedResults reads the ends of the execs that the log still has as running.
func (s *System) recordedResults(e *entry) map[string]runtime.ExecResult {
	results := map[string]runtime.ExecResult{}
	for id := range e.state.Load().Running {
		if result, found := s.runtime.ExecRecord(e.id, id); found {
			results[id] = result
		}
	}
	return results
}

// errorCode is the runtime's own code for the error, "" where it has none.
func errorCode(err error) string {
	if coded, ok := errors.AsType[runtime.CodedError](err); ok {
		return coded.ErrorCode()
	}
	return ""
}
