package actors

import (
	"context"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// exec is the actor of one running command, a child of its sandbox named x-<exec id>. The command itself
// lives in the sandbox: when this actor ends, or the daemon, it goes on.
type exec struct {
	system  *System
	request *agboxv1.CreateExecRequest
	cancel  context.CancelFunc
}

type (
	// cancelExec has the command ended.
	cancelExec struct{}
	// execEnded tells the sandbox how the command ended.
	execEnded struct {
		execID string
		result lifecycle.ExecResult
	}
)

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
			result = execLost(err)
		}
		x.system.actors.Root.Send(sandbox, &execEnded{execID: x.request.ExecId, result: result})
	})
}

func (x *exec) run(ctx context.Context) (result lifecycle.ExecResult, err error) {
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
