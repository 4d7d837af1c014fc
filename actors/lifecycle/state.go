// Package lifecycle is the pure core of a sandbox and holds all policy: no I/O, no clock, no goroutine. Decide turns a state and a
// command into the events to record, by the table in allowed.go. Fold turns a state and events into the next state; whatever a
// sandbox is follows from folding its log. Next is what a sandbox does by itself and when, Facts what the end of work means.
package lifecycle

import (
	"cmp"
	"strings"

	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
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
type Operation = journalv1.Operation

const (
	NoOperation = journalv1.Operation_OPERATION_NONE
	Creating    = journalv1.Operation_OPERATION_CREATE
	Resuming    = journalv1.Operation_OPERATION_RESUME
	Stopping    = journalv1.Operation_OPERATION_STOP
	Removing    = journalv1.Operation_OPERATION_DELETE
	Pausing     = journalv1.Operation_OPERATION_PAUSE
	Unpausing   = journalv1.Operation_OPERATION_UNPAUSE
	Killing     = journalv1.Operation_OPERATION_KILL
	Restarting  = journalv1.Operation_OPERATION_RESTART
)

// Verb is the operation's name for people: "create".
func Verb(o Operation) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OPERATION_"))
}

// What the log tells of a service.
const (
	ServiceNew    = journalv1.ServiceState_SERVICE_STATE_NEW
	ServiceReady  = journalv1.ServiceState_SERVICE_STATE_READY
	ServiceFailed = journalv1.ServiceState_SERVICE_STATE_FAILED
	ServiceAgain  = journalv1.ServiceState_SERVICE_STATE_AGAIN
)

// State is one sandbox as its log tells it. It goes from phase to phase, with the operation in progress in brackets,
// by command:
//
//	create                           [*] → PENDING(create)
//	create, lazily                   [*] → DORMANT
//	create, warm                     [*] → READY
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
//
// A State never changes, nor does anything in it: Fold makes the next one. It is the message that the database keeps. New makes the
// first; the zero value is none.
type State struct {
	SandboxID string
	*journalv1.State
}

// New is a sandbox of which nothing has happened yet, or, with what the database kept, one of which that has.
func New(sandboxID string, kept *journalv1.State) State {
	return State{sandboxID, cmp.Or(kept, &journalv1.State{})}
}

// Known reports whether the log has anything of the service since the sandbox was last READY.
func (s State) Known(service string) bool {
	return s.Services[service] == ServiceReady || s.Services[service] == ServiceFailed
}

// Ending reports whether the sandbox is deleted, or is being.
func (s State) Ending() bool { return s.Phase == Deleting || s.Phase == Deleted }

// Up reports whether the sandbox's containers should exist and run, be it frozen.
func (s State) Up() bool {
	return s.Phase == Ready || s.Phase == Paused || s.Phase == Draining
}

// Idle reports whether nothing goes on in the sandbox, so that its idle time counts from ActiveAt.
func (s State) Idle() bool {
	return s.Phase == Ready && s.Operation == NoOperation && len(s.Running) == 0
}
