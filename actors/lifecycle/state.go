// Package lifecycle is the pure core of a sandbox: Decide turns a state and a command into the events to
// record, Fold turns a state and an event into the next state. No I/O, no clock, no goroutine; whatever a
// sandbox is follows from folding its log.
package lifecycle

import (
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Phase is the state that callers see.
type Phase = agboxv1.SandboxState

const (
	None     = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	Pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	Ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	Failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	Stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	Deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	Deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED
	Paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	Draining = agboxv1.SandboxState_SANDBOX_STATE_DRAINING
	Dormant  = agboxv1.SandboxState_SANDBOX_STATE_DORMANT
)

// Operation is the work on the runtime that the log has announced and not yet seen the end of. It is what a
// restarted sandbox carries on with.
type Operation int

const (
	NoOperation Operation = iota
	Creating
	Resuming
	Stopping
	Removing
	Pausing
	Unpausing
	// Killing is Stopping without grace.
	Killing
	// Restarting halts a sandbox that has crashed and, at RestartAt, resumes it.
	Restarting
)

func (o Operation) String() string {
	return [...]string{"none", "create", "resume", "stop", "delete", "pause", "unpause", "kill", "restart"}[o]
}

// ServiceState is what the log tells of a service.
type ServiceState int32

const (
	// ServiceNew: nothing yet.
	ServiceNew ServiceState = iota
	ServiceReady
	ServiceFailed
	// ServiceAgain: it was told of before the sandbox was stopped, and has not been since.
	ServiceAgain
)

// State is one sandbox as its log tells it.
//
//	         Create               OperationDone              Stop, idle
//	(none) ─────────► PENDING ─────────────────► READY ─────────────────► READY
//	                  Creating       ┌──────────► │  ▲                   Stopping
//	                     │           │            │  └──── exec events      │
//	     OperationFailed │           │            │ Died             │ OperationDone
//	                     ▼           │            ▼                         ▼
//	                  FAILED ◄───────┼───────── FAILED ◄──────────────── STOPPED
//	                     ▲           │                  OperationFailed     │
//	                     │        PENDING ◄─────────────────────────────────┘
//	                     │        Resuming             Resume
//	                     │
//	      OperationFailed│             Delete, from every state but the last two
//	                     └──────── DELETING ─────────────► DELETED
//	                               Removing  OperationDone
//
// Pause leads from READY to PAUSED (over Pausing), Unpause back (over Unpausing); a Stop can come in both. Drain leads from
// READY to DRAINING, which refuses execs and, when the last one has ended or its time is over, goes on as after a Stop.
// A Stop with Force replaces one that is under way. Extend and Detach change no phase.
//
// Recover leads to where the sandbox was found: READY, PAUSED, STOPPED or FAILED.
//
// A lazy Create leads to DORMANT, and Use or Resume from there to PENDING (Creating); when that fails it is DORMANT again.
//
// Died, or a CommandEnded that fails, leads from READY to FAILED, or with Restarts left to PENDING (Restarting), which a
// Stop ends like a READY; Quarantined leads to FAILED from every state but DELETED. An
// operation that ends after a Delete was accepted changes nothing: the log is in DELETING by then. Commands that do not
// fit are refused; facts that come too late are ignored.
type State struct {
	SandboxID string
	Phase     Phase
	Operation Operation
	// Reason is why the operation in progress, or the last one, was asked for.
	Reason string
	// Sequence is the newest event's; the next one has Sequence+1.
	Sequence  uint64
	CreatedAt time.Time
	ChangedAt time.Time
	// ActiveAt is when the sandbox was last seen at work: it became READY, or an exec started or ended.
	ActiveAt time.Time
	// ErrorCode and ErrorMessage tell why the sandbox is FAILED, and are empty otherwise.
	ErrorCode    string
	ErrorMessage string
	// Running are the execs that have not ended, by id, with the time each was accepted. A State never
	// changes: Fold copies the map.
	Running map[string]time.Time
	// Services is what was told of each service by name, Ports where the primary's are published. CommandEnded: the
	// primary's own command has ended. They are not changed either.
	Services     map[string]ServiceState
	Ports        []*agboxv1.PublishedPort
	CommandEnded bool
	// Grace is what the stop in progress leaves to processes, nil for the daemon's own. DrainUntil is when DRAINING ends
	// at the latest, zero for never.
	Grace      *time.Duration
	DrainUntil time.Time
	// Extended: ExpiresAt is in force, zero for never, in place of what the spec says. IdleTTL is, when it is not nil.
	Extended  bool
	ExpiresAt time.Time
	IdleTTL   *time.Duration
	// Lazy: the sandbox was created so and never made. Detached: it has no lease any more.
	Lazy     bool
	Detached bool
	// Recovered: the log begins with what was found in the runtime; what the sandbox was asked to be is put together from that.
	Recovered bool
	// Restarts counts those in a row, the one at RestartAt included.
	Restarts  uint32
	RestartAt time.Time
}

// Known reports whether anything was told of the service since the sandbox was last READY.
func (s ServiceState) Known() bool { return s == ServiceReady || s == ServiceFailed }

// Ending reports whether the sandbox is deleted, or is being.
func (s State) Ending() bool { return s.Phase == Deleting || s.Phase == Deleted }

// Made reports whether anything of the sandbox can be in the runtime.
func (s State) Made() bool {
	return s.Phase != None && s.Phase != Dormant && s.Phase != Deleted
}

// Stoppable reports whether the sandbox runs or is to run again by itself.
func (s State) Stoppable() bool {
	return s.Up() || s.Phase == Pending && (s.Operation == Restarting || s.Operation == Stopping || s.Operation == Killing)
}

// Up reports whether the sandbox's containers should exist and run, be it frozen.
func (s State) Up() bool {
	return s.Phase == Ready || s.Phase == Paused || s.Phase == Draining
}

// Idle reports whether nothing goes on in the sandbox, so that its idle time counts from ActiveAt.
func (s State) Idle() bool {
	return s.Phase == Ready && s.Operation == NoOperation && len(s.Running) == 0
}
