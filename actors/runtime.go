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
	// Conflict returns an error that wraps ErrConflict when something is there already under a name that a new sandbox with
	// this id needs.
	Conflict(ctx context.Context, sandboxID string) error

	// Create makes the sandbox without its optional services and returns once commands can run in it. It reports
	// progress (Preparing and ServiceReported) as it goes. It removes what it made before it returns an error, but
	// when ctx ended: then Create is called again, or Remove.
	Create(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) (Started, error)
	// Resume starts a stopped sandbox again, without its optional services, and never recreates a part of it.
	Resume(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, report func(lifecycle.Command)) (Started, error)
	// Stop ends every process of the sandbox, its services included, and keeps its files. Processes have grace from TERM
	// to KILL, nil for the daemon's own. A frozen sandbox goes on for that.
	Stop(ctx context.Context, sandboxID string, grace *time.Duration) error
	// Pause freezes every process of the sandbox, its services included, and the clocks of its execs; Unpause ends that.
	Pause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error
	Unpause(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) error
	// Halt is Stop without any grace, for a sandbox that has failed.
	Halt(ctx context.Context, sandboxID string) error
	// Remove leaves nothing of the sandbox in the runtime, whatever state it is in. Exec logs stay.
	Remove(ctx context.Context, sandboxID string) error
	// PrepareService makes an optional service's image present; StartService starts the service, making it first
	// unless again says that it was made before, and never overlaps with what changes the sandbox; AwaitService
	// returns once it is healthy and its hooks have run.
	PrepareService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error
	StartService(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec, service *agboxv1.ServiceSpec, again bool) error
	AwaitService(ctx context.Context, sandboxID string, service *agboxv1.ServiceSpec) error
	// Forget removes the exec logs and results of a removed sandbox.
	Forget(sandboxID string) error

	// ForgetExec removes the logs and the result of one exec, which has ended.
	ForgetExec(sandboxID, execID string) error

	// Inventory lists what there is of this daemon's sandboxes, in a few calls however many there are.
	Inventory(ctx context.Context) (Inventory, error)
	// Describe returns a sandbox that only the runtime knows, and ExecIDs the execs of which there are logs or results.
	Describe(ctx context.Context, sandboxID string) (Found, error)
	ExecIDs(sandboxID string) ([]string, error)
	// Observe returns what became of the sandbox's containers.
	Observe(ctx context.Context, sandboxID string, spec *agboxv1.CreateSpec) (Observation, error)
	// Attach opens the way for commands to a primary that runs, as after a restart of the daemon. Commands do
	// so by themselves; this spares the first one the wait.
	Attach(sandboxID string) error
	// Watch tells what happens, from since on, until ctx ends. It reconnects by itself.
	Watch(ctx context.Context, since time.Time, watcher Watcher)

	// Isolated reports whether sandboxes are kept from the host and from each other, and if not, why.
	Isolated() (bool, string)
	// Engine tells what the runtime runs on.
	Engine(ctx context.Context) (Engine, error)
	// Stats returns what each container of the sandbox that runs, or is paused, uses now: the primary first, then the
	// services by name.
	Stats(ctx context.Context, sandboxID string) ([]*agboxv1.ContainerStats, error)

	// Exec starts the command, or finds the one with this id that was started before, and returns how it
	// ended. When ctx ends first the command goes on, and Exec may be called again.
	Exec(ctx context.Context, request *agboxv1.CreateExecRequest) (lifecycle.ExecResult, error)
	// ExecRecord returns the result that is on disk, also when the sandbox is gone.
	ExecRecord(sandboxID, execID string) (lifecycle.ExecResult, bool)
	// ExecRecorded says that the end of the exec is in the log, so that nobody has to repeat it.
	ExecRecorded(sandboxID, execID string)
	// CancelExec ends the command and all that it started. How it ended is Exec's to tell.
	CancelExec(ctx context.Context, sandboxID, execID string) error
	// SignalExec sends a signal to the command's own process, once. It fails with ErrExecTerminal, ErrExecNotStarted, or
	// ErrOutcomeUnknown.
	SignalExec(ctx context.Context, sandboxID, execID string, signal int) error
	// ExecLogs returns the host paths of the exec's output.
	ExecLogs(sandboxID, execID string) (stdout, stderr string)
}

// CommandID stands for the primary's own command in Exec, ExecRecord and ExecRecorded: Exec never starts it and returns
// how it ended. It can be no exec's id.
const CommandID = "_primary"

// Started is what is known of a sandbox once commands can run in it.
type Started struct{ Ports []*agboxv1.PublishedPort }

// Observation is the state of a sandbox that should run.
type Observation struct {
	// Alive: the primary and all required services run. Otherwise Code and Cause tell a person why not: exit code,
	// signal, out of memory, or what is missing.
	Alive       bool
	Code, Cause string
	// Lost are the optional services that were made and do not run, and why.
	Lost map[string]string
}

// Watcher hears what happens in the runtime. Its methods do not block.
type Watcher interface {
	// Ended: a container of the sandbox ended.
	Ended(sandboxID string)
	// LinkLost: the program inside the sandbox, for which something waits, cannot be reached; why is for a person.
	LinkLost(sandboxID, why string)
	// Appeared: an object of the sandbox was made. The sandbox may belong to another daemon.
	Appeared(sandboxID string)
	// Missed: there was a gap, and whatever happened in it will not be told.
	Missed()
}

// Inventory is what the runtime holds of this daemon's sandboxes.
type Inventory struct {
	// Running are the sandboxes whose containers all run.
	Running map[string]bool
	// Objects are the sandboxes with any object in the runtime; true when an earlier process of this daemon made it.
	Objects map[string]bool
	// Histories are the sandboxes with logs or results on disk.
	Histories []string
	// Since is when the oldest of it was made, by sandbox, as far as that shows.
	Since map[string]time.Time
}

// CodedError is an error of the runtime that has an error code of its own for the FAILED event.
type CodedError interface {
	error
	ErrorCode() string
}
