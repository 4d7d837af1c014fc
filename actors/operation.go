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
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// operation is work on the runtime that goes on outside its actor.
type operation struct {
	token  uint64
	kind   lifecycle.Operation
	cancel context.CancelFunc
}

// operationEnded comes back from every operation, whatever happened to it.
type operationEnded struct {
	token uint64
	kind  lifecycle.Operation
	err   error
	// results are the ends of execs that are on disk, read after the operation.
	results map[string]runtime.ExecResult
	// command is the end of the primary's own command, if that is on disk.
	command *runtime.ExecResult
	// seen is what an observation found.
	seen    runtime.Observation
	started runtime.Started
}

// progressed is an operation's progress.
type progressed struct {
	token   uint64
	command lifecycle.Command
}

// launch runs the operation in a goroutine of its own, after what still runs for the sandbox from before. The
// kind NoOperation observes the sandbox, and halts one that has died.
func (s *System) launch(e *entry, pid *actor.PID, kind lifecycle.Operation) *operation {
	ctx, cancel := context.WithCancel(s.working)
	op := &operation{token: s.tokens.Add(1), kind: kind, cancel: cancel}
	s.work.Go(func() {
		defer cancel()
		ended := operationEnded{token: op.token, kind: kind}
		if kind == lifecycle.Restarting {
			s.waitUntil(ctx, e.state.Load().RestartAt)
		}
		select {
		case <-e.gate:
			s.perform(ctx, e, pid, &ended)
			e.gate <- struct{}{}
		case <-ctx.Done():
			ended.err = ctx.Err()
			s.actors.Root.Send(pid, &ended)
		}
	})
	return op
}

// perform does the operation and sends its end, also when it panics.
func (s *System) perform(ctx context.Context, e *entry, pid *actor.PID, ended *operationEnded) {
	defer func() {
		if reason := recover(); reason != nil {
			ended.err = s.panicked(ended.kind.String(), e.id, reason)
		}
		s.actors.Root.Send(pid, ended)
	}()
	told := map[runtime.Progress]bool{}
	var telling sync.Mutex
	ended.err = s.persistently(ctx, func() error {
		return s.operate(ctx, e, ended, func(p runtime.Progress) {
			telling.Lock()
			known := told[p] // by an earlier try
			told[p] = true
			telling.Unlock()
			if !known {
				s.actors.Root.Send(pid, &progressed{token: ended.token, command: lifecycle.Progressed(p)})
			}
		})
	})
	ended.results = s.recordedResults(e)
	if result, found := s.runtime.ExecRecord(e.id, runtime.CommandID); found && len(e.spec.GetCommand()) > 0 {
		ended.command = &result
	}
}

// panicked audits a panic outside of an actor and returns what those concerned are told.
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

// persistently does what it is given until the engine answers, or ctx ends: an engine that is gone for a while is
// a pause and no failure.
func (s *System) persistently(ctx context.Context, do func() error) error {
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

func (s *System) operate(ctx context.Context, e *entry, ended *operationEnded, report func(runtime.Progress)) (err error) {
	switch ended.kind {
	case lifecycle.Creating:
		ended.started, err = s.runtime.Create(ctx, e.id, e.spec, report)
	case lifecycle.Resuming:
		ended.started, err = s.runtime.Resume(ctx, e.id, e.spec, report)
	case lifecycle.Restarting:
		ended.started, err = s.restart(ctx, e, report)
	case lifecycle.Stopping:
		err = s.runtime.Stop(ctx, e.id, e.state.Load().Grace)
	case lifecycle.Killing:
		err = s.runtime.Halt(ctx, e.id)
	case lifecycle.Pausing:
		err = s.runtime.Pause(ctx, e.id, e.spec)
	case lifecycle.Unpausing:
		err = s.runtime.Unpause(ctx, e.id, e.spec)
	case lifecycle.Removing:
		err = s.remove(ctx, e)
	default:
		if ended.seen, err = s.runtime.Observe(ctx, e.id, e.spec); err != nil || ended.seen.Alive && !e.crashed.Load() {
			return err
		}
		if err := s.runtime.Halt(ctx, e.id); err != nil {
			s.log.Warn("a sandbox that failed could not be halted", slog.String("sandbox_id", e.id), slog.Any("error", err))
		}
		if !ended.seen.Alive { // an engine hears that memory ran out a moment after the end that it led to
			if again, err := s.runtime.Observe(ctx, e.id, e.spec); err == nil && again.Code == ended.seen.Code {
				ended.seen = again
			}
		}
	}
	return err
}

// remove removes the sandbox, again if something of it was made meanwhile.
func (s *System) remove(ctx context.Context, e *entry) error {
	for {
		e.appeared.Store(false)
		if err := s.runtime.Remove(ctx, e.id); err != nil || !e.appeared.Load() {
			return err
		}
	}
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

func failure(kind lifecycle.Operation, err error) lifecycle.OperationFailed {
	failed := lifecycle.OperationFailed{Operation: kind, Message: err.Error()}
	if coded, ok := errors.AsType[runtime.CodedError](err); ok {
		failed.Code = coded.ErrorCode()
	}
	return failed
}

// execLost is the result of an exec that the runtime could not tell about.
func execLost(err error) runtime.ExecResult {
	result := runtime.ExecResult{
		State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: lifecycle.CodeExecResultLost, Message: err.Error(),
	}
	if coded, ok := errors.AsType[runtime.CodedError](err); ok {
		result.Code = coded.ErrorCode()
	}
	return result
}
