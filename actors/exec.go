package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/persist"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// exec is the actor of one running command, a child of its sandbox named x-<exec id>. The command itself
// lives in the sandbox: when this actor ends, or the daemon, it goes on.
type exec struct {
	system  *System
	request *agboxv1.CreateExecRequest
	cancel  context.CancelFunc
}

// cancelExec has the command ended.
type cancelExec struct{}

func (x *exec) Receive(c actor.Context) {
	switch c.Message().(type) {
	case *actor.Started:
		x.start(c.Parent())
	case *cancelExec:
		x.cancelCommand()
	case *actor.Stopping, *actor.Restarting:
		x.cancel()
	}
}

func (x *exec) start(sandbox *actor.PID) {
	ctx, cancel := context.WithCancel(x.system.working)
	x.cancel = cancel
	x.system.work.Go(func() {
		result, err := x.run(ctx)
		if err != nil && ctx.Err() != nil {
			return // nobody waits: the sandbox has recorded the end, or will ask again
		}
		if err != nil {
			result = runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED,
				Code: cmp.Or(errorCode(err), lifecycle.CodeExecResultLost), Message: err.Error()}
		}
		x.system.actors.Root.Send(sandbox, &execEnded{execID: x.request.ExecId, result: result})
	})
}

func (x *exec) run(ctx context.Context) (result runtime.ExecResult, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = x.system.panicked("exec", x.request.ExecId, reason)
		}
	}()
	return x.system.runtime.Exec(ctx, x.request)
}

func (x *exec) cancelCommand() {
	sandboxID, execID := x.request.SandboxId, x.request.ExecId
	x.system.work.Go(func() {
		if err := x.system.runtime.CancelExec(x.system.working, sandboxID, execID); err != nil {
			x.system.log.Error("cancel of an exec did not reach it",
				slog.String("sandbox_id", sandboxID), slog.String("exec_id", execID), slog.Any("error", err))
		}
	})
}

func (s *sandbox) runExec(c actor.Context, request *agboxv1.CreateExecRequest) {
	props := actor.PropsFromProducer(func() actor.Actor { return &exec{system: s.system, request: request} })
	name := "x-" + request.ExecId
	if request.ExecId == runtime.CommandID { // once in each life of the sandbox
		name = fmt.Sprintf("%s-%d", name, s.state.Sequence)
	}
	pid, err := c.SpawnNamed(props, name)
	if err != nil {
		s.system.log.Error("exec cannot be followed", slog.String("exec_id", request.ExecId), slog.Any("error", err))
		return
	}
	s.execs[request.ExecId] = pid
}

// runCommand waits for the end of the primary's own command, which runs as long as the sandbox does.
func (s *sandbox) runCommand(c actor.Context) {
	if s.execs[runtime.CommandID] != nil || !s.policy().FollowsCommand(s.state) {
		return
	}
	s.commandOver = false
	s.runExec(c, &agboxv1.CreateExecRequest{SandboxId: s.entry.id, ExecId: runtime.CommandID, Command: s.entry.spec.Command})
}

// StartExec accepts a command, whose request names an unused exec id, and returns once it is durable and on
// its way. It fails with ErrExecIDTaken, ErrNotFound or a *lifecycle.Refusal. A requestID is as for Create.
func (s *System) StartExec(ctx context.Context, exec *agboxv1.CreateExecRequest, requestID string) error {
	if s.closing.Load() {
		return ErrShuttingDown
	}
	e, err := s.entry(exec.SandboxId)
	if err != nil {
		return err
	}
	r := newRequest(lifecycle.StartExec{ExecID: exec.ExecId})
	r.exec, r.requestID = exec, requestID
	err = s.request(ctx, e, r).err
	if err == nil || errors.Is(err, runtime.ErrOutcomeUnknown) {
		return err
	}
	// Also where the sandbox is not READY any more: the first try may have been accepted before that.
	if earlier, known := s.db.Exec(exec.SandboxId, exec.ExecId); known == nil && sameKey(earlier.RequestID, requestID) && proto.Equal(earlier.Request, exec) {
		return nil
	}
	if errors.Is(err, persist.ErrExecIDTaken) || errors.Is(err, lifecycle.ErrExecExists) {
		return fmt.Errorf("%w: %s", ErrExecIDTaken, exec.ExecId)
	}
	return err
}

// CancelExec has a running command ended; its end is told by the log. It fails with ErrExecNotFound or
// runtime.ErrExecTerminal.
func (s *System) CancelExec(ctx context.Context, execID string) error {
	if s.closing.Load() {
		return ErrShuttingDown
	}
	owner, err := s.ExecOwner(execID)
	if err != nil {
		return err
	}
	e, err := s.entry(owner)
	if err != nil {
		return err
	}
	err = s.request(ctx, e, newRequest(lifecycle.CancelExec{ExecID: execID})).err
	if errors.Is(err, lifecycle.ErrExecNotRunning) {
		return fmt.Errorf("%w: %s", runtime.ErrExecTerminal, execID)
	}
	return err
}

// SignalExec sends a signal to a running command's own process. It fails with ErrExecNotFound, runtime.ErrExecTerminal,
// runtime.ErrExecNotStarted, a *lifecycle.Refusal for a sandbox that is frozen, or runtime.ErrOutcomeUnknown; then the signal may have
// been sent.
func (s *System) SignalExec(ctx context.Context, execID string, signal int) error {
	if s.closing.Load() {
		return ErrShuttingDown
	}
	owner, err := s.ExecOwner(execID)
	if err != nil {
		return err
	}
	view, err := s.Sandbox(owner)
	if err != nil {
		return err
	}
	if _, running := view.State.Running[execID]; !running {
		return fmt.Errorf("%w: %s", runtime.ErrExecTerminal, execID)
	}
	if view.State.Phase == lifecycle.Paused {
		return lifecycle.NotReady(view.State)
	}
	return s.runtime.SignalExec(ctx, owner, execID, signal)
}

// ExecOwner returns the sandbox that an exec runs or ran in, or ErrExecNotFound. Every call that names an exec finds it by
// this: what is in the log is found, also in the moment before its sandbox has taken it in.
func (s *System) ExecOwner(execID string) (sandboxID string, err error) {
	if e, found := s.registry.runner(execID); found {
		return e.id, nil
	}
	owner, err := s.db.ExecOwner(execID)
	if errors.Is(err, persist.ErrNoExec) {
		return "", fmt.Errorf("%w: %s", ErrExecNotFound, execID)
	}
	return owner, err
}
