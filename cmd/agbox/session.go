package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
)

// session is one exec with a person, or a script, in front of it.
type session struct {
	*app
	client   *sdk.Client
	signals  <-chan os.Signal
	accepted chan string             // gets the exec's id
	leave    context.CancelCauseFunc // ends the session's context
	patience time.Duration           // from TERM to leaving
	hit      atomic.Pointer[interrupt]
	obeying  sync.WaitGroup
}

// termPatience is how long the end of the command is waited for after TERM, from which no second signal can be expected: a
// little longer than a daemon usually leaves to a command that it ends.
const termPatience = 12 * time.Second

// obey cancels the exec at the first signal and leaves at the second, or when TERM has not helped for the patience. It returns
// when the session's context is done.
func (s *session) obey(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	accepted := (chan string)(nil) // of interest once there is something to cancel
	var overdue <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.signals:
			hit := &interrupt{sig}
			if s.hit.Load() != nil {
				s.leave(hit)
				return
			}
			s.hit.Store(hit)
			accepted = s.accepted
			if sig == syscall.SIGTERM {
				overdue = time.After(s.patience)
			}
		case <-overdue:
			s.leave(s.hit.Load())
			return
		case id := <-accepted:
			group.Go(func() { s.cancel(ctx, id) })
		}
	}
}

func (s *session) cancel(ctx context.Context, id string) {
	err := s.client.CancelExec(ctx, id, sdk.WithWait(false))
	if err == nil || ctx.Err() != nil || ended(err) {
		return
	}
	s.say("cannot cancel: %v", err)
	s.leave(s.hit.Load())
}

// ended reports whether a cancel came too late.
func ended(err error) bool {
	return errors.Is(err, sdk.ErrExecAlreadyTerminal) || errors.Is(err, sdk.ErrExecNotRunning)
}

// interrupted ends the session's context, and returns the signal that came by then, nil for none.
func (s *session) interrupted() *interrupt {
	s.leave(nil)
	s.obeying.Wait()
	if hit := s.hit.Load(); hit != nil {
		return hit
	}
	select {
	case sig := <-s.signals:
		return &interrupt{sig}
	default:
		return nil
	}
}

// refused ends a session whose exec was not accepted, as far as is known.
func (s *session) refused(err error) error {
	hit := s.interrupted()
	switch {
	case hit != nil && errors.Is(err, context.Canceled): // we have left
		return &statusError{code: hit.code()}
	case hit != nil:
		return &statusError{hit.code(), err}
	}
	return &statusError{exitFault, err}
}

// detached leaves the exec, unless a signal came before that was accepted: then nobody else knows of it.
func (s *session) detached(ctx context.Context, resp *agboxv1.CreateExecResponse) error {
	hit := s.interrupted()
	if hit == nil {
		return s.printDetached(resp)
	}
	id := resp.GetExecId()
	if err := s.client.CancelExec(ctx, id, sdk.WithWait(false)); err != nil && !ended(err) {
		s.say("cannot cancel exec %s, which may still run: %v", id, err)
	}
	return &statusError{code: hit.code()}
}

// end turns the exec's end, or what kept us from seeing it, into the exit code.
func (s *session) end(ctx context.Context, exec sdk.Exec, err error) error {
	hit := s.hit.Load()
	switch {
	case !exec.Ended() && errors.As(context.Cause(ctx), &hit):
		s.say("left exec %s, which may still run", exec.ID)
		return &statusError{code: hit.code()}
	case errors.Is(err, syscall.EPIPE):
		if !exec.Ended() {
			err = s.client.CancelExec(ctx, exec.ID)
		}
		if err != nil && !errors.Is(err, syscall.EPIPE) && !ended(err) {
			s.report(err)
		}
		return &statusError{code: exitBrokenPipe}
	case !exec.Ended():
		return &statusError{exitFault, err}
	}
	if s.json {
		resp, err := s.client.Raw().GetExec(ctx, &agboxv1.GetExecRequest{ExecId: exec.ID})
		if err == nil {
			err = s.printJSON(resp)
		}
		if err != nil {
			return &statusError{exitFault, err}
		}
	}
	if hit != nil {
		return &statusError{code: hit.code()}
	}
	switch {
	case exec.TimedOut:
		return &statusError{exitTimedOut, fmt.Errorf("the command ran into its timeout and was ended (exit %d)", exec.ExitCode)}
	case exec.OOM:
		s.say("the command was killed: the sandbox has run out of memory; agbox sandbox create --memory gives it more")
	}
	if code := exitCode(exec, err); code != 0 {
		return &statusError{code, err}
	}
	return nil
}

func exitCode(exec sdk.Exec, err error) int {
	switch {
	case exec.State == sdk.ExecCancelled && exec.ExitCode != 0:
		return exec.ExitCode
	case exec.State == sdk.ExecCancelled:
		return exitKilled
	case exec.State == sdk.ExecFinished && err == nil:
		return exec.ExitCode
	}
	switch exec.ErrorCode {
	case "EXEC_COMMAND_NOT_FOUND":
		return exitNotFound
	case "EXEC_COMMAND_NOT_EXECUTABLE", "EXEC_CWD_INVALID", "EXEC_USER_UNKNOWN", "EXEC_START_FAILED", "EXEC_TERMINAL_UNAVAILABLE":
		return exitCannotRun
	}
	return exitFault
}

func (s *session) printDetached(resp *agboxv1.CreateExecResponse) error {
	if s.json {
		return s.printJSON(resp)
	}
	_, err := fmt.Fprintln(s.out, resp.GetExecId())
	return err
}
