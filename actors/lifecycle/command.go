package lifecycle

import (
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Reasons that stop and delete events carry.
const (
	ReasonStopRequested   = "stop_requested"
	ReasonIdleTTL         = "idle_ttl"
	ReasonDeleteRequested = "delete_requested"
	ReasonCleanupTTL      = "cleanup_ttl"
	ReasonMaxDuration     = "max_duration"
	ReasonDrained         = "drained"
	ReasonDrainDeadline   = "drain_deadline"
	ReasonPauseRequested  = "pause_requested"
	ReasonLeaseEnded      = "lease_ended"
	ReasonNothingLeft     = "nothing_left"
)

// Error codes that FAILED and EXEC_FAILED events carry, beside those of the runtime.
const (
	CodeCreateFailed   = "SANDBOX_CREATE_FAILED"
	CodeResumeFailed   = "SANDBOX_RESUME_FAILED"
	CodeStopFailed     = "SANDBOX_STOP_FAILED"
	CodeDeleteFailed   = "SANDBOX_DELETE_FAILED"
	CodePauseFailed    = "SANDBOX_PAUSE_FAILED"
	CodeExecResultLost = "EXEC_RESULT_LOST"
	CodeCrashLoop      = "ACTOR_CRASH_LOOP"
	CodeCrashed        = "SANDBOX_CRASHED"
)

// Command is something that was asked of a sandbox or that has happened to it.
type Command interface{ name() string }

// Requests: refused when they do not fit.
type (
	// Create begins a sandbox; one that is Lazy is not made before a Use or a Resume, and one that is Warm was made ahead and is READY.
	// ForkedFrom is whose fork it is, "" for nobody's.
	Create struct {
		Lazy, Warm bool
		ForkedFrom string
	}
	// Use begins to make a DORMANT sandbox and means nothing to any other, but that Traffic, which is somebody who connects to a
	// port of the sandbox, waits for one that goes on for traffic.
	Use struct{ Traffic bool }
	// Resume starts a sandbox again whose time is not over.
	Resume struct{}
	// Stop ends every process: those that get TERM have Grace until KILL, nil for the daemon's own. With Force all get
	// KILL at once, also in a stop that is under way.
	Stop struct {
		Reason string
		Force  bool
		Grace  *time.Duration
	}
	Delete  struct{ Reason string }
	Pause   struct{ Reason string }
	Unpause struct{}
	// Drain stops the sandbox once no exec runs any more, or at Until, zero for never.
	Drain struct{ Until time.Time }
	// Extend sets what is not nil: the end of the sandbox, zero for none, and its idle time, 0 for never. It counts as
	// activity.
	Extend struct {
		ExpiresAt *time.Time
		IdleTTL   *time.Duration
	}
	// Recover begins a sandbox that the runtime has and no log knows, as it is: READY, PAUSED, STOPPED, or FAILED with a
	// Code. Services are those that were made.
	Recover struct {
		Phase         Phase
		Code, Message string
		CreatedAt     time.Time
		Services      []string
		Ports         []*agboxv1.PublishedPort
	}
	// RecoverExec records an exec that the sandbox has and its log does not. Without a Result it still runs where the
	// sandbox does, and is lost otherwise.
	RecoverExec struct {
		ExecID string
		Result *runtime.ExecResult
	}
	// Detach takes the sandbox's lease away.
	Detach struct{}
	// IfUnchanged is Then for a sandbox that has not left the phase in which it was seen.
	IfUnchanged struct {
		Phase Phase
		Since time.Time
		Then  Command
	}
	// StartExec names an exec id that was never used.
	StartExec struct{ ExecID string }
	// CancelExec records nothing by itself: the end of the exec does.
	CancelExec struct{ ExecID string }
)

// Facts: ignored when they come too late to matter.
type (
	// Preparing is progress of a create or resume. A ServiceReported that was recorded before is not recorded again.
	Preparing       runtime.Preparing
	ServiceReported runtime.ServiceReported
	// OperationDone and OperationFailed end the operation in progress, when it is the one named. An empty
	// Code stands for the operation's own. Ports are those of a sandbox that becomes READY.
	OperationDone struct {
		Operation Operation
		Ports     []*agboxv1.PublishedPort
	}
	OperationFailed struct {
		Operation     Operation
		Code, Message string
	}
	// Died tells that a container that the sandbox cannot be without is gone though nobody asked.
	Died struct{ Code, Message string }
	// LinkLost tells that the program inside the sandbox cannot be reached. What that makes of the sandbox, a look at it tells.
	LinkLost struct{ Message string }
	// CommandEnded tells how the primary's own command ended, and whether that is the sandbox's failure.
	CommandEnded struct {
		Result runtime.ExecResult
		Fails  bool
	}
	ExecEnded struct {
		ExecID string
		Result runtime.ExecResult
	}
	// Quarantined gives a sandbox up whose actor crashes again and again.
	Quarantined struct{ Message string }
)

// Progressed is the fact that the progress is.
func Progressed(p runtime.Progress) Command {
	if service, ok := p.(runtime.ServiceReported); ok {
		return ServiceReported(service)
	}
	return Preparing(p.(runtime.Preparing))
}

func (Create) name() string            { return "create" }
func (Use) name() string               { return "use" }
func (Recover) name() string           { return "recover" }
func (RecoverExec) name() string       { return "recover exec" }
func (IfUnchanged) name() string       { return "change" }
func (Detach) name() string            { return "detach" }
func (Resume) name() string            { return "resume" }
func (Delete) name() string            { return "delete" }
func (Pause) name() string             { return "pause" }
func (Unpause) name() string           { return "unpause" }
func (Drain) name() string             { return "drain" }
func (Extend) name() string            { return "extend" }
func (StartExec) name() string         { return "start exec" }
func (CancelExec) name() string        { return "cancel exec" }
func (Preparing) name() string         { return "preparing" }
func (ServiceReported) name() string   { return "service reported" }
func (c OperationDone) name() string   { return Verb(c.Operation) + " done" }
func (c OperationFailed) name() string { return Verb(c.Operation) + " failed" }
func (Died) name() string              { return "died" }
func (LinkLost) name() string          { return "link lost" }
func (CommandEnded) name() string      { return "command ended" }
func (ExecEnded) name() string         { return "exec ended" }
func (Quarantined) name() string       { return "quarantined" }

func (c Stop) name() string {
	if c.Force {
		return "stop by force"
	}
	return "stop"
}
