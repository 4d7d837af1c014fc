package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

type event = agboxv1.SandboxEvent

// Decide returns the events that c brings about at time now, complete with sequence, id and state, ready to be
// recorded and folded. A request that does not fit is a *Refusal; a fact that comes too late is no events.
func Decide(s State, p Policy, c Command, now time.Time) ([]*event, error) {
	d := decision{state: s, policy: p, now: now}
	err := d.decide(c)
	if err != nil {
		return nil, err
	}
	return d.events, nil
}

type decision struct {
	state  State
	policy Policy
	now    time.Time
	events []*event
}

func (d *decision) decide(c Command) error {
	switch c := c.(type) {
	case Create:
		return d.create(c)
	case Use:
		return d.use()
	case Recover:
		return d.recover(c)
	case RecoverExec:
		return d.recoverExec(c)
	case Unchanged:
		if d.state.Phase != c.Phase || !d.state.ChangedAt.Equal(c.Since) {
			return d.wrongState("change", "it is not what it was when it was looked at")
		}
		return d.decide(c.Then)
	case Detach:
		return d.detach()
	case Resume:
		return d.resume()
	case Stop:
		return d.stop(c)
	case Delete:
		return d.delete(c)
	case Pause:
		return d.pause(c)
	case Unpause:
		return d.unpause()
	case Drain:
		return d.drain(c)
	case Extend:
		return d.extend(c)
	case StartExec:
		return d.startExec(c)
	case CancelExec:
		if _, running := d.state.Running[c.ExecID]; !running {
			return refuse(ErrExecNotRunning, "exec %s is not running: there is nothing to cancel", c.ExecID)
		}
	case Preparing:
		if d.state.Phase == Pending {
			d.emitPhase(agboxv1.EventType_SANDBOX_PREPARING, Pending,
				&agboxv1.SandboxPhaseDetails{Phase: c.Phase, Image: c.Image, BytesDone: c.Done, BytesTotal: c.Total})
		}
	case ServiceReported:
		if d.state.Phase == Pending || d.state.Up() {
			d.serviceReported(c)
		}
	case OperationDone:
		if c.Operation == d.state.Operation {
			d.operationDone(c.Ports)
		}
	case OperationFailed:
		if c.Operation == d.state.Operation && c.Operation != NoOperation {
			d.operationFailed(c)
		}
	case Died:
		if d.state.Up() && d.state.Operation == NoOperation {
			d.endRunning(agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecResultLost,
				"the sandbox ended while the command ran: "+c.Message)
			d.crash(c.Code, c.Message)
		}
	case LinkLost:
		if d.state.Up() && d.state.Phase != Paused && d.state.Operation == NoOperation {
			d.emitPhase(agboxv1.EventType_SANDBOX_LINK_LOST, d.state.Phase,
				&agboxv1.SandboxPhaseDetails{ErrorCode: runtime.CodeLinkLost, ErrorMessage: c.Message})
		}
	case CommandEnded:
		if d.state.Up() && !d.state.CommandEnded {
			d.commandEnded(c)
		}
	case ExecEnded:
		if _, running := d.state.Running[c.ExecID]; running {
			d.execEnded(c.ExecID, c.Result)
			d.drained()
		}
	case Quarantined:
		switch d.state.Phase {
		case Pending, Ready, Paused, Draining, Stopped, Deleting, Dormant:
			d.endRunning(agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecResultLost, c.Message)
			d.fail(CodeCrashLoop, c.Message)
		}
	default:
		return fmt.Errorf("lifecycle: unknown command %T", c)
	}
	return nil
}

func (d *decision) create(c Create) error {
	if d.state.Phase != None {
		return refuse(ErrAlreadyExists, "sandbox %s exists already", d.state.SandboxID)
	}
	phase := Pending
	if c.Lazy {
		phase = Dormant
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_ACCEPTED, phase, &agboxv1.SandboxPhaseDetails{Phase: Creating.String()})
	return nil
}

func (d *decision) recover(c Recover) error {
	if d.state.Phase != None {
		return refuse(ErrAlreadyExists, "sandbox %s exists already", d.state.SandboxID)
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_RECOVERED, c.Phase, &agboxv1.SandboxPhaseDetails{
		ErrorCode: c.Code, ErrorMessage: c.Message, CreatedAt: timestamp(c.CreatedAt), Ports: c.Ports,
	})
	for _, service := range c.Services {
		d.serviceReported(ServiceReported{Service: service})
	}
	return nil
}

func (d *decision) recoverExec(c RecoverExec) error {
	if _, running := d.state.Running[c.ExecID]; running {
		return refuse(ErrExecExists, "exec %s exists already", c.ExecID)
	}
	d.emitExec(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{
		ExecId: c.ExecID, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING,
	})
	switch {
	case c.Result != nil:
		d.execEnded(c.ExecID, *c.Result)
	case !d.state.Up():
		d.execEnded(c.ExecID, runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: CodeExecResultLost,
			Message: "there is no result of it, and the sandbox does not run"})
	}
	return nil
}

func (d *decision) use() error {
	switch d.state.Phase {
	case None:
		return refuse(ErrNotFound, "there is no sandbox %s", d.state.SandboxID)
	case Dormant:
		d.emitPhase(agboxv1.EventType_SANDBOX_ACCEPTED, Pending, &agboxv1.SandboxPhaseDetails{Phase: Creating.String()})
	}
	return nil
}

func (d *decision) detach() error {
	switch d.state.Phase {
	case None, Deleting, Deleted:
		return d.wrongState("detach", "it is or is being deleted")
	}
	if !d.state.Detached {
		d.emitPhase(agboxv1.EventType_SANDBOX_DETACHED, d.state.Phase, &agboxv1.SandboxPhaseDetails{})
	}
	return nil
}

func (d *decision) resume() error {
	if d.state.Phase == Dormant {
		return d.use()
	}
	if d.state.Phase != Stopped {
		return d.wrongState("resume", "only a STOPPED sandbox can be resumed")
	}
	if expires := d.policy.ExpiresAt(d.state); !expires.IsZero() && !d.now.Before(expires) {
		return d.wrongState("resume", fmt.Sprintf("its time was over at %s and it would be stopped at once: extend its max_duration first",
			expires.UTC().Format(time.RFC3339)))
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_ACCEPTED, Pending, &agboxv1.SandboxPhaseDetails{Phase: Resuming.String()})
	return nil
}

func (d *decision) stop(c Stop) error {
	switch {
	case !d.state.Stoppable():
		return d.wrongState("stop", "only a sandbox that is READY, PAUSED or DRAINING can be stopped")
	case d.state.Operation == Killing, d.state.Operation == Stopping && !c.Force:
		return d.wrongState("stop", "it is being stopped already: wait for SANDBOX_STOPPED")
	case d.state.Operation == Pausing, d.state.Operation == Unpausing:
		return d.wrongState("stop", "it is being paused or unpaused: try again in a moment")
	}
	d.requestStop(c)
	return nil
}

func (d *decision) requestStop(c Stop) {
	details := &agboxv1.SandboxPhaseDetails{Reason: c.Reason, Force: c.Force}
	if c.Grace != nil {
		details.Grace = durationpb.New(*c.Grace)
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, d.state.Phase, details)
}

func (d *decision) pause(c Pause) error {
	if d.state.Phase != Ready || d.state.Operation != NoOperation {
		return d.wrongState("pause", "only a READY sandbox can be paused")
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, Ready, &agboxv1.SandboxPhaseDetails{Reason: c.Reason})
	return nil
}

func (d *decision) unpause() error {
	if d.state.Phase != Paused || d.state.Operation != NoOperation {
		return d.wrongState("unpause", "only a PAUSED sandbox can be unpaused")
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED, Paused, &agboxv1.SandboxPhaseDetails{})
	return nil
}

func (d *decision) drain(c Drain) error {
	if d.state.Phase != Ready || d.state.Operation != NoOperation {
		return d.wrongState("drain", "only a READY sandbox can be drained")
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_DRAIN_REQUESTED, Draining, &agboxv1.SandboxPhaseDetails{DrainUntil: timestamp(c.Until)})
	d.drained()
	return nil
}

// drained goes on with the stop when nothing runs any more.
func (d *decision) drained() {
	if d.state.Phase == Draining && d.state.Operation == NoOperation && len(d.state.Running) == 0 {
		d.requestStop(Stop{Reason: ReasonDrained})
	}
}

func (d *decision) extend(c Extend) error {
	switch d.state.Phase {
	case None, Deleting, Deleted:
		return d.wrongState("extend", "it is or is being deleted")
	}
	details := &agboxv1.SandboxPhaseDetails{}
	if c.ExpiresAt != nil {
		if details.ExpiresAt = timestamp(*c.ExpiresAt); details.ExpiresAt == nil {
			details.ExpiresAt = &timestamppb.Timestamp{} // none
		}
	}
	if c.IdleTTL != nil {
		details.IdleTtl = durationpb.New(*c.IdleTTL)
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_EXTENDED, d.state.Phase, details)
	return nil
}

func (d *decision) delete(c Delete) error {
	switch d.state.Phase {
	case None:
		return refuse(ErrNotFound, "there is no sandbox %s", d.state.SandboxID)
	case Deleting, Deleted:
		return nil
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, Deleting, &agboxv1.SandboxPhaseDetails{Reason: c.Reason})
	return nil
}

func (d *decision) startExec(c StartExec) error {
	if d.state.Phase != Ready || d.state.Operation != NoOperation {
		return NotReady(d.state)
	}
	if _, running := d.state.Running[c.ExecID]; running {
		return refuse(ErrExecExists, "exec %s exists already", c.ExecID)
	}
	d.emitExec(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{
		ExecId: c.ExecID, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING,
	})
	return nil
}

// NotReady refuses what needs a READY sandbox.
func NotReady(s State) error {
	return refuse(ErrNotReady, "sandbox %s is %s: commands run only while it is READY%s", s.SandboxID, s.label(), s.way())
}

func (d *decision) wrongState(verb, rule string) error {
	if d.state.Phase == None {
		return refuse(ErrNotFound, "there is no sandbox %s", d.state.SandboxID)
	}
	return refuse(ErrInvalidState, "cannot %s sandbox %s, which is %s: %s",
		verb, d.state.SandboxID, d.state.label(), rule)
}

// label names the state for a person, an operation that has not shown in the phase included.
func (s State) label() string {
	name := strings.TrimPrefix(s.Phase.String(), "SANDBOX_STATE_")
	switch {
	case s.Stoppable() && (s.Operation == Stopping || s.Operation == Killing):
		return name + " and stopping"
	case s.Operation == Restarting:
		return name + " and being restarted"
	case s.Operation == Pausing:
		return name + " and being paused"
	case s.Operation == Unpausing:
		return name + " and being unpaused"
	}
	return name
}

func (s State) way() string {
	switch s.Phase {
	case Pending:
		return "; wait for SANDBOX_READY"
	case Stopped:
		return "; resume it first"
	case Paused:
		return "; unpause it first"
	case Draining:
		return "; it takes no more commands before it is stopped"
	case Failed:
		return "; it failed: " + s.ErrorMessage
	case Dormant:
		if s.ErrorMessage != "" {
			return "; it could not be made: " + s.ErrorMessage + "; the next use tries again"
		}
	}
	return ""
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (d *decision) emitPhase(kind agboxv1.EventType, phase Phase, details *agboxv1.SandboxPhaseDetails) {
	d.emit(&event{EventType: kind, SandboxState: phase,
		Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: details}})
}

func (d *decision) emitExec(kind agboxv1.EventType, details *agboxv1.ExecEventDetails) {
	d.emit(&event{EventType: kind, SandboxState: d.state.Phase, Details: &agboxv1.SandboxEvent_Exec{Exec: details}})
}

// emit takes what others said of the sandbox only as far as it can be kept and sent.
func (d *decision) emit(e *event) {
	bound(e)
	e.SandboxId = d.state.SandboxID
	e.Sequence = d.state.Sequence + 1
	e.EventId = fmt.Sprintf("%s/%d", e.SandboxId, e.Sequence)
	e.OccurredAt = timestamppb.New(d.now)
	d.events = append(d.events, e)
	d.state = Fold(d.state, e)
}
