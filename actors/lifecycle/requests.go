package lifecycle

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (d *decision) create(c Create) {
	phase := Pending
	if c.Lazy {
		phase = Dormant
	}
	d.accept(phase, Creating, c.ForkedFrom)
	if c.Warm {
		d.preparing(Preparing{Phase: "materialize"})
		d.started(OperationDone{Operation: Creating})
	}
}

func (d *decision) accept(phase Phase, operation Operation, forkedFrom string) {
	d.emitPhase(agboxv1.EventType_SANDBOX_ACCEPTED, phase, &agboxv1.SandboxPhaseDetails{Phase: Verb(operation), ForkedFrom: forkedFrom})
}

func (d *decision) recover(c Recover) {
	d.emitPhase(agboxv1.EventType_SANDBOX_RECOVERED, c.Phase, &agboxv1.SandboxPhaseDetails{
		ErrorCode: c.Code, ErrorMessage: c.Message, CreatedAt: timestamp(c.CreatedAt), Ports: c.Ports,
	})
	for _, service := range c.Services {
		d.serviceReported(ServiceReported{Service: service})
	}
}

func (d *decision) recoverExec(c RecoverExec) error {
	if err := d.startExec(StartExec{ExecID: c.ExecID}); err != nil {
		return err
	}
	switch {
	case c.Result != nil:
		d.endExec(c.ExecID, *c.Result)
	case !d.state.Up():
		d.endExec(c.ExecID, runtime.ExecResult{State: agboxv1.ExecState_EXEC_STATE_FAILED, Code: CodeExecResultLost,
			Message: "there is no result of it, and the sandbox does not run"})
	}
	return nil
}

// make begins to make a DORMANT sandbox.
func (d *decision) make(Command) { d.accept(Pending, Creating, "") }

func (d *decision) resume(c Resume) error {
	if err := d.hasTime(c); err != nil {
		return err
	}
	d.accept(Pending, Resuming, "")
	return nil
}

// hasTime refuses what would bring about a sandbox whose time is over, and that would therefore be ended again at once.
func (d *decision) hasTime(c Command) error {
	if expires := d.policy.ExpiresAt(d.state); !expires.IsZero() && !d.now.Before(expires) {
		ended := "stopped"
		if d.policy.Spec.GetOnExpiry() == byPause {
			ended = "paused"
		}
		return refusal(d.state, c, ErrInvalidState, fmt.Sprintf("its time was over at %s and it would be %s at once: extend its max_duration first",
			expires.UTC().Format(time.RFC3339), ended))
	}
	return nil
}

func (d *decision) stop(c Stop) {
	details := &agboxv1.SandboxPhaseDetails{Reason: c.Reason, Force: c.Force}
	if c.Grace != nil {
		details.Grace = durationpb.New(*c.Grace)
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, d.state.Phase, details)
}

func (d *decision) drain(c Drain) {
	d.emitPhase(agboxv1.EventType_SANDBOX_DRAIN_REQUESTED, Draining, &agboxv1.SandboxPhaseDetails{DrainUntil: timestamp(c.Until)})
	d.drained()
}

// drained goes on with the stop when nothing runs any more.
func (d *decision) drained() {
	if d.state.Phase == Draining && d.state.Operation == NoOperation && len(d.state.Running) == 0 {
		d.stop(Stop{Reason: ReasonDrained})
	}
}

func (d *decision) pause(c Pause) {
	d.emitPhase(agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, Ready, &agboxv1.SandboxPhaseDetails{Reason: c.Reason})
}

func (d *decision) unpause(c Unpause) error {
	if err := d.hasTime(c); err != nil && d.policy.Spec.GetOnExpiry() == byPause {
		return err
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_UNPAUSE_REQUESTED, Paused, &agboxv1.SandboxPhaseDetails{})
	return nil
}

func (d *decision) extend(c Extend) {
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
}

func (d *decision) detach(Detach) {
	if !d.state.Detached {
		d.emitPhase(agboxv1.EventType_SANDBOX_DETACHED, d.state.Phase, &agboxv1.SandboxPhaseDetails{})
	}
}

func (d *decision) delete(c Delete) {
	d.emitPhase(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, Deleting, &agboxv1.SandboxPhaseDetails{Reason: c.Reason})
}

func (d *decision) startExec(c StartExec) error {
	if d.running(c.ExecID) {
		return refuse(ErrExecExists, "exec %s exists already", c.ExecID)
	}
	d.emitExec(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{
		ExecId: c.ExecID, ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING,
	})
	return nil
}

func (d *decision) cancelExec(c CancelExec) error {
	if !d.running(c.ExecID) {
		return refuse(ErrExecNotRunning, "exec %s is not running: there is nothing to cancel", c.ExecID)
	}
	return nil
}

func (d *decision) running(execID string) bool {
	_, running := d.state.Running[execID]
	return running
}
