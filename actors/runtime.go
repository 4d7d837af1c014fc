package actors

import (
	"context"
	"time"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Runtime is what sandboxes are made of. Every method may be called again after a crash with the same
// arguments and then carries on or does nothing more; every method bounds its own calls, and ctx only adds an
// earlier end. Methods of one sandbox that change it (Create, Resume, Stop, Remove) never overlap.
type Runtime interface {
	// Conflict returns an error that wraps ErrConflict when a name that the sandbox needs is held by an
	// object that is not ours.
	Conflict(ctx context.Context, sandboxID string) error

	// Create makes the sandbox and returns once commands can run in it. It reports progress (Preparing and
	// ServiceReported) as it goes. It removes what it made before it returns an error, but when ctx ended: then
	// Create is called again, or Remove.
	Create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) error
	// Resume starts a stopped sandbox again and never recreates a part of it.
	Resume(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) error
	// Stop ends every process of the sandbox and keeps its files.
	Stop(ctx context.Context, sandboxID string) error
	// Remove leaves nothing of the sandbox in the runtime, whatever state it is in. Exec logs stay.
	Remove(ctx context.Context, sandboxID string) error
	// Forget removes the exec logs and results of a removed sandbox.
	Forget(sandboxID string) error

	// Inventory lists what there is of this daemon's sandboxes, in a few calls however many there are.
	Inventory(ctx context.Context) (Inventory, error)
	// Observe returns what became of the primary container.
	Observe(ctx context.Context, sandboxID string) (Primary, error)
	// Attach opens the way for commands to a primary that runs, as after a restart of the daemon. Commands do
	// so by themselves; this spares the first one the wait.
	Attach(sandboxID string) error
	// Watch tells what happens, from since on, until ctx ends. It reconnects by itself.
	Watch(ctx context.Context, since time.Time, watcher Watcher)

	// Exec starts the command, or finds the one with this id that was started before, and returns how it
	// ended. When ctx ends first the command goes on, and Exec may be called again.
	Exec(ctx context.Context, request *agboxv1.CreateExecRequest) (lifecycle.ExecResult, error)
	// ExecRecord returns the result that is on disk, also when the sandbox is gone.
	ExecRecord(sandboxID, execID string) (lifecycle.ExecResult, bool)
	// ExecRecorded says that the end of the exec is in the log, so that nobody has to repeat it.
	ExecRecorded(sandboxID, execID string)
	// CancelExec ends the command and all that it started. How it ended is Exec's to tell.
	CancelExec(ctx context.Context, sandboxID, execID string) error
	// ExecLogs returns the host paths of the exec's output.
	ExecLogs(sandboxID, execID string) (stdout, stderr string)
}

// Primary is the state of a primary container.
type Primary struct {
	Running bool
	// Cause tells a person why it is not running: exit code, signal, out of memory, or that it is missing.
	Cause string
}

// Watcher hears what happens in the runtime. Its methods do not block.
type Watcher interface {
	// Ended: the sandbox's primary container ended.
	Ended(sandboxID string)
	// Appeared: an object of the sandbox was made. The sandbox may belong to another daemon.
	Appeared(sandboxID string)
	// Missed: there was a gap, and whatever happened in it will not be told.
	Missed()
}

// Inventory is what the runtime holds of this daemon's sandboxes.
type Inventory struct {
	// Running are the sandboxes whose primary container runs.
	Running map[string]bool
	// Objects are the sandboxes with any object in the runtime; true when an earlier process of this daemon made it.
	Objects map[string]bool
	// Histories are the sandboxes with logs or results on disk.
	Histories []string
}

// CodedError is an error of the runtime that has an error code of its own for the FAILED event.
type CodedError interface {
	error
	ErrorCode() string
}
