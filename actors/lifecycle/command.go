package lifecycle

import (
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Reasons that stop and delete events carry.
const (
	ReasonStopRequested   = "stop_requested"
	ReasonIdleTTL         = "idle_ttl"
	ReasonDeleteRequested = "delete_requested"
	ReasonCleanupTTL      = "cleanup_ttl"
)

// Error codes that FAILED and EXEC_FAILED events carry, beside those of the runtime.
const (
	CodeCreateFailed        = "SANDBOX_CREATE_FAILED"
	CodeResumeFailed        = "SANDBOX_RESUME_FAILED"
	CodeStopFailed          = "SANDBOX_STOP_FAILED"
	CodeDeleteFailed        = "SANDBOX_DELETE_FAILED"
	CodeContainerNotRunning = "CONTAINER_NOT_RUNNING"
	CodeExecResultLost      = "EXEC_RESULT_LOST"
	CodeExecStartFailed     = "EXEC_START_FAILED"
	CodeCrashLoop           = "ACTOR_CRASH_LOOP"
)

// Command is something that was asked of a sandbox or that has happened to it.
type Command interface{ command() }

// Requests: refused when they do not fit.
type (
	Create struct{}
	Resume struct{}
	Stop   struct{ Reason string }
	Delete struct{ Reason string }
	// StartExec names an exec id that was never used.
	StartExec struct{ ExecID string }
	// CancelExec records nothing by itself: the end of the exec does.
	CancelExec struct{ ExecID string }
)

// Facts: ignored when they come too late to matter.
type (
	// Preparing tells of progress of a create or resume.
	Preparing struct{ Phase string }
	// ServiceReported tells that a service became ready or, with a code, that it failed.
	ServiceReported struct{ Service, Code, Message string }
	// OperationDone and OperationFailed end the operation in progress, when it is the one named. An empty
	// Code stands for the operation's own.
	OperationDone   struct{ Operation Operation }
	OperationFailed struct {
		Operation     Operation
		Code, Message string
	}
	// PrimaryDied tells that the primary container is gone though nobody asked.
	PrimaryDied struct{ Code, Message string }
	ExecEnded   struct {
		ExecID string
		Result ExecResult
	}
	// Quarantined gives a sandbox up whose actor crashes again and again.
	Quarantined struct{ Message string }
)

// ExecResult is how an exec ended.
type ExecResult struct {
	// State is FINISHED, FAILED or CANCELLED.
	State    agboxv1.ExecState
	ExitCode int32
	Signal   int32
	// Code and Message are set when it FAILED, and may explain a CANCELLED.
	Code, Message  string
	Started, Ended time.Time // zero when not known
}

func (Create) command()          {}
func (Resume) command()          {}
func (Stop) command()            {}
func (Delete) command()          {}
func (StartExec) command()       {}
func (CancelExec) command()      {}
func (Preparing) command()       {}
func (ServiceReported) command() {}
func (OperationDone) command()   {}
func (OperationFailed) command() {}
func (PrimaryDied) command()     {}
func (ExecEnded) command()       {}
func (Quarantined) command()     {}
