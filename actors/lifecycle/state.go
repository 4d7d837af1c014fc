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

// State is one sandbox as its log tells it. It goes from phase to phase, with the operation in progress in brackets,
// by command:
//
//	create                           [*] → PENDING(create)
//	create, lazily                   [*] → DORMANT
//	use                              DORMANT → PENDING(create)
//	resume                           STOPPED → PENDING(resume)
//	resume                           DORMANT → PENDING(create)
//	stop                             PENDING(restart) → PENDING(stop)
//	stop                             READY → READY(stop)
//	stop                             PAUSED → PAUSED(stop)
//	stop                             DRAINING → DRAINING(stop)
//	stop by force                    PENDING(stop) PENDING(restart) → PENDING(kill)
//	stop by force                    READY READY(stop) → READY(kill)
//	stop by force                    PAUSED PAUSED(stop) → PAUSED(kill)
//	stop by force                    DRAINING DRAINING(stop) → DRAINING(kill)
//	drain                            READY → DRAINING(stop)
//	drain                            READY → DRAINING
//	pause                            READY → READY(pause)
//	unpause                          PAUSED → PAUSED(unpause)
//	delete                           all but [*] DELETING(delete) DELETED → DELETING(delete)
//	a container died                 READY PAUSED DRAINING → FAILED
//	a container died, restarts left  READY → PENDING(restart)
//	a container died, restarts left  PAUSED DRAINING → FAILED
//	its command ended                READY PAUSED DRAINING → FAILED
//	its actor crashes on             all but [*] FAILED DELETED → FAILED
//	taken in                         [*] → READY
//	taken in                         [*] → PAUSED
//	taken in                         [*] → STOPPED
//	taken in                         [*] → FAILED
//	create done                      PENDING(create) → READY
//	create failed                    PENDING(create) → FAILED
//	create failed                    PENDING(create) → DORMANT
//	resume done                      PENDING(resume) → READY
//	resume failed                    PENDING(resume) → FAILED
//	stop done                        PENDING(stop) READY(stop) PAUSED(stop) DRAINING(stop) → STOPPED
//	stop failed                      PENDING(stop) READY(stop) PAUSED(stop) DRAINING(stop) → FAILED
//	delete done                      DELETING(delete) → DELETED
//	delete failed                    DELETING(delete) → FAILED
//	pause done                       READY(pause) → PAUSED
//	pause failed                     READY(pause) → READY
//	unpause done                     PAUSED(unpause) → READY
//	unpause failed                   PAUSED(unpause) → PAUSED
//	kill done                        PENDING(kill) READY(kill) PAUSED(kill) DRAINING(kill) → STOPPED
//	kill failed                      PENDING(kill) READY(kill) PAUSED(kill) DRAINING(kill) → FAILED
//	restart done                     PENDING(restart) → READY
//	restart failed                   PENDING(restart) → FAILED
//
// Commands that do not fit are refused; facts that come too late are ignored: an operation that ends after a Delete was accepted
// changes nothing. These lines are written by TestDiagramsAreOfTheTable.
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
