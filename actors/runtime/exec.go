package runtime

import (
	"context"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Execs runs commands in sandboxes.
type Execs interface {
	// Exec starts the command, or finds the one with this id that was started before, and returns how it
	// ended. When ctx ends first the command goes on, and Exec may be called again.
	Exec(ctx context.Context, request *agboxv1.CreateExecRequest) (ExecResult, error)
	// ExecRecord returns the result that is on disk, also when the sandbox is gone.
	ExecRecord(sandboxID, execID string) (ExecResult, bool)
	// ExecRecorded says that the end of the exec is in the log, so that nobody has to repeat it.
	ExecRecorded(sandboxID, execID string)
	// CancelExec ends the command and all that it started. How it ended is Exec's to tell.
	CancelExec(ctx context.Context, sandboxID, execID string) error
	// SignalExec sends a signal to the command's own process, once. It fails with ErrExecTerminal, ErrExecNotStarted, or
	// ErrOutcomeUnknown.
	SignalExec(ctx context.Context, sandboxID, execID string, signal int) error
	// ExecPID returns the pid of the command's process as the sandbox counts, 0 unless it is known to run; AwaitExec waits until
	// it is, or for ctx, whose error it returns.
	ExecPID(execID string) int
	AwaitExec(ctx context.Context, execID string) (pid int, err error)
	// ForgetExec removes the logs and the result of one exec, which has ended.
	ForgetExec(sandboxID, execID string) error
}

// CommandID stands for the primary's own command in Exec, ExecRecord and ExecRecorded: Exec never starts it and returns
// how it ended. It can be no exec's id.
const CommandID = "_primary"

// ExecResult is how an exec ended.
type ExecResult struct {
	// State is FINISHED, FAILED or CANCELLED.
	State    agboxv1.ExecState
	ExitCode int32
	Signal   int32
	// Code and Message are set when it FAILED, and may explain a CANCELLED.
	Code, Message  string
	Started, Ended time.Time // zero when not known
	Resources      *agboxv1.ExecResources
	PID            int // as the sandbox counts, 0 when not known
}
