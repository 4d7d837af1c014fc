package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/cenkalti/backoff/v5"

	"github.com/agbox-dev/agbox/actors/lifecycle"
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
	results map[string]lifecycle.ExecResult
	// primary is what an observation found.
	primary Primary
}

// progressed is an operation's progress.
type progressed struct {
	token   uint64
	command lifecycle.Command
}

// launch runs the operation in a goroutine of its own, after what still runs for the sandbox from before. The
// kind NoOperation observes the primary and changes nothing.
func (s *System) launch(e *entry, pid *actor.PID, kind lifecycle.Operation) *operation {
	ctx, cancel := context.WithCancel(s.working)
	op := &operation{token: s.tokens.Add(1), kind: kind, cancel: cancel}
	s.work.Go(func() {
		defer cancel()
		ended := operationEnded{token: op.token, kind: kind}
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
	ended.err = s.persistently(ctx, func() error {
		var err error
		ended.primary, err = s.operate(ctx, e, ended.kind, func(c lifecycle.Command) {
			s.actors.Root.Send(pid, &progressed{token: ended.token, command: c})
		})
		return err
	})
	ended.results = s.recordedResults(e)
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

// persistently does what it is given until the engine answers, or ctx ends: an engine that is gone for a while is
// a pause and no failure.
func (s *System) persistently(ctx context.Context, do func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = firstRetry, lastRetry
	for {
		err := do()
		if err == nil || !errors.Is(err, ErrUnreachable) || ctx.Err() != nil {
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

func (s *System) operate(ctx context.Context, e *entry, kind lifecycle.Operation, report func(lifecycle.Command)) (Primary, error) {
	switch kind {
	case lifecycle.Creating:
		return Primary{}, s.runtime.Create(ctx, e.id, e.spec, report)
	case lifecycle.Resuming:
		return Primary{}, s.runtime.Resume(ctx, e.id, e.spec, report)
	case lifecycle.Stopping:
		return Primary{}, s.runtime.Stop(ctx, e.id)
	case lifecycle.Removing:
		return Primary{}, s.remove(ctx, e)
	default:
		return s.runtime.Observe(ctx, e.id)
	}
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
func (s *System) recordedResults(e *entry) map[string]lifecycle.ExecResult {
	results := map[string]lifecycle.ExecResult{}
	for id := range e.state.Load().Running {
		if result, found := s.runtime.ExecRecord(e.id, id); found {
			results[id] = result
		}
	}
	return results
}

func failure(kind lifecycle.Operation, err error) lifecycle.OperationFailed {
	failed := lifecycle.OperationFailed{Operation: kind, Message: err.Error()}
	if coded, ok := errors.AsType[CodedError](err); ok {
		failed.Code = coded.ErrorCode()
	}
	return failed
}

// execLost is the result of an exec that the runtime could not tell about.
func execLost(err error) lifecycle.ExecResult {
	result := lifecycle.ExecResult{
		State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: lifecycle.CodeExecResultLost, Message: err.Error(),
	}
	if coded, ok := errors.AsType[CodedError](err); ok {
		result.Code = coded.ErrorCode()
	}
	return result
}
