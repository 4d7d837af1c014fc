package actorstest

import (
	"context"
	"fmt"
	"syscall"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (r *Runtime) Exec(ctx context.Context, request *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
	r.mu.Lock()
	r.calls = append(r.calls, "exec "+request.ExecId)
	if r.Play != nil {
		p := r.play(request)
		r.mu.Unlock()
		select {
		case <-p.done:
			return p.result, nil
		case <-ctx.Done():
			return runtime.ExecResult{}, ctx.Err()
		}
	}
	r.mu.Unlock()
	if r.Run == nil {
		return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FINISHED}, nil
	}
	return r.Run(ctx, request)
}

// UntilCancelled is a Run for commands that only a cancel ends.
func (r *Runtime) UntilCancelled(ctx context.Context, request *agboxv1.CreateExecRequest) (runtime.ExecResult, error) {
	select {
	case <-r.cancelled(request.ExecId):
		return runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_CANCELLED, ExitCode: 143, Signal: 15}, nil
	case <-ctx.Done():
		return runtime.ExecResult{}, ctx.Err()
	}
}

func (r *Runtime) cancelled(execID string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels[execID] == nil {
		r.cancels[execID] = make(chan struct{})
	}
	return r.cancels[execID]
}

// ExecPID implements runtime.Execs.
func (r *Runtime) ExecPID(execID string) int { return r.pids.Of(execID) }

// AwaitExec implements runtime.Execs.
func (r *Runtime) AwaitExec(ctx context.Context, execID string) (int, error) {
	return r.pids.Await(ctx, execID)
}

func (r *Runtime) CancelExec(_ context.Context, sandboxID, execID string) error {
	if p := r.find(sandboxID, execID); p != nil {
		p.cancel(errCancelled)
		return nil
	}
	close(r.cancelled(execID))
	return nil
}

func (r *Runtime) SignalExec(_ context.Context, sandboxID, execID string, signal int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.played[sandboxID+"/"+execID]; p != nil {
		select {
		case p.signals <- syscall.Signal(signal):
		default: // it takes none
		}
	}
	r.calls = append(r.calls, fmt.Sprintf("signal %d to %s in %s", signal, execID, sandboxID))
	return nil
}

func (r *Runtime) ExecRecord(sandboxID, execID string) (runtime.ExecResult, bool) {
	if p := r.find(sandboxID, execID); p != nil {
		if !p.ended() {
			return runtime.ExecResult{}, false
		}
		return p.result, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result, found := r.records[execID]
	return result, found
}

func (r *Runtime) ExecRecorded(_, execID string) {
	r.mu.Lock()
	r.calls = append(r.calls, "recorded "+execID)
	r.mu.Unlock()
	if r.Recorded != nil {
		r.Recorded(execID)
	}
}

func (r *Runtime) ExecLogs(sandboxID, execID string) (stdout, stderr string) {
	path := fmt.Sprintf("%s/logs/%s/%s", r.Logs, sandboxID, execID)
	return path + ".stdout.log", path + ".stderr.log"
}

// find returns nil for what is not played.
func (r *Runtime) find(sandboxID, execID string) *played {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.played[sandboxID+"/"+execID]
}
