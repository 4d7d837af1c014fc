package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (d *decision) serviceReported(c ServiceReported) {
	kind, state := agboxv1.EventType_SANDBOX_SERVICE_READY, ServiceReady
	if c.Code != "" {
		kind, state = agboxv1.EventType_SANDBOX_SERVICE_FAILED, ServiceFailed
	}
	if d.state.Services[c.Service] == state {
		return
	}
	d.emit(&event{EventType: kind, SandboxState: d.state.Phase, Details: &agboxv1.SandboxEvent_Service{
		Service: &agboxv1.ServiceEventDetails{ServiceName: c.Service, ErrorCode: c.Code, ErrorMessage: c.Message},
	}})
}

func (d *decision) preparing(c Preparing) {
	d.emitPhase(agboxv1.EventType_SANDBOX_PREPARING, Pending,
		&agboxv1.SandboxPhaseDetails{Phase: c.Phase, Image: c.Image, BytesDone: c.Done, BytesTotal: c.Total, QueuedBefore: c.Before})
}

func (d *decision) started(c OperationDone) {
	d.emitPhase(agboxv1.EventType_SANDBOX_READY, Ready, &agboxv1.SandboxPhaseDetails{Ports: c.Ports})
}

func (d *decision) paused(OperationDone) {
	d.emitPhase(agboxv1.EventType_SANDBOX_PAUSED, Paused, &agboxv1.SandboxPhaseDetails{Reason: d.state.Reason})
}

func (d *decision) unpaused(OperationDone) {
	d.emitPhase(agboxv1.EventType_SANDBOX_UNPAUSED, Ready, &agboxv1.SandboxPhaseDetails{})
}

// pauseFailed: what could not be paused goes on.
func (d *decision) pauseFailed(c OperationFailed) {
	d.emitPhase(agboxv1.EventType_SANDBOX_UNPAUSED, Ready, problem(cmp.Or(c.Code, CodePauseFailed), c.Message))
}

// unpauseFailed: what could not be unpaused stays as it is.
func (d *decision) unpauseFailed(c OperationFailed) {
	d.emitPhase(agboxv1.EventType_SANDBOX_PAUSED, Paused, problem(cmp.Or(c.Code, CodePauseFailed), c.Message))
}

func (d *decision) stopped(OperationDone) {
	d.endRunning(agboxv1.ExecState_EXEC_STATE_CANCELLED, "", "the sandbox was stopped while the command ran")
	d.emitPhase(agboxv1.EventType_SANDBOX_STOPPED, Stopped, &agboxv1.SandboxPhaseDetails{Reason: d.state.Reason})
}

func (d *decision) deleted(OperationDone) {
	d.endRunning(agboxv1.ExecState_EXEC_STATE_CANCELLED, "", "the sandbox was deleted while the command ran")
	d.endSnapshots("the sandbox was deleted before its turn came")
	d.emitPhase(agboxv1.EventType_SANDBOX_DELETED, Deleted, &agboxv1.SandboxPhaseDetails{Reason: d.state.Reason})
}

func (d *decision) died(c Died) {
	d.loseRunning("the sandbox ended while the command ran: " + c.Message)
	d.crash(c.Code, c.Message)
}

func (d *decision) linkLost(c LinkLost) {
	d.emitPhase(agboxv1.EventType_SANDBOX_LINK_LOST, d.state.Phase, problem(runtime.CodeLinkLost, c.Message))
}

func (d *decision) quarantined(c Quarantined) {
	d.loseRunning(c.Message)
	d.fail(CodeCrashLoop, c.Message)
}

func (d *decision) commandEnded(c CommandEnded) {
	if d.state.CommandEnded {
		return
	}
	r := c.Result
	d.emit(&event{EventType: agboxv1.EventType_SANDBOX_COMMAND_ENDED, SandboxState: d.state.Phase, Details: &agboxv1.SandboxEvent_Command{
		Command: &agboxv1.CommandEventDetails{
			ExitCode: r.ExitCode, Signal: r.Signal, ErrorCode: r.Code, ErrorMessage: r.Message,
			StartedAt: timestamp(r.Started), EndedAt: timestamp(r.Ended),
		},
	}})
	if !c.Fails || d.state.Operation != NoOperation {
		return
	}
	how := fmt.Sprintf("exit code %d", r.ExitCode)
	if r.Signal != 0 {
		how = fmt.Sprintf("signal %d", r.Signal)
	}
	if r.Message != "" {
		how += ": " + r.Message
	}
	code, message := CodeCrashed, "the sandbox's own command ended with "+how
	if r.Resources.GetOom() {
		code, message = runtime.CodeOutOfMemory, message+", out of memory"
	}
	d.loseRunning(message)
	if r.ExitCode == 0 && r.Code == "" { // it has done its work: no restart
		d.fail(code, message)
		return
	}
	d.crash(code, message)
}

const (
	// steadyAfter is how long a sandbox has to be READY for its next crash to count as the first.
	steadyAfter = 10 * time.Minute
	maxBackoff  = 5 * time.Minute
)

// crash is the end of a sandbox, unless it may be restarted. Who paused or drained it did not ask for a new life.
func (d *decision) crash(code, message string) {
	most, wait := d.policy.restarts()
	n := d.state.Restarts + 1
	if d.state.Phase == Ready && d.now.Sub(d.state.ChangedAt.AsTime()) >= steadyAfter {
		n = 1
	}
	if n > most || d.state.Phase != Ready && d.state.Operation != Restarting {
		if d.state.Restarts > 0 {
			message += fmt.Sprintf(" (after %d restarts in a row)", d.state.Restarts)
		}
		d.fail(code, message)
		return
	}
	for i := uint32(1); i < n && wait < maxBackoff; i++ {
		wait *= 2
	}
	d.emitPhase(agboxv1.EventType_SANDBOX_RESTARTING, Pending, &agboxv1.SandboxPhaseDetails{
		ErrorCode: code, ErrorMessage: message, Restarts: n, RestartAt: timestamp(d.now.Add(min(wait, maxBackoff))),
	})
}

// notMade is the end of a sandbox that could not be made, but of a lazy one.
func (d *decision) notMade(code, message string) {
	if d.state.Lazy {
		d.emitPhase(agboxv1.EventType_SANDBOX_DORMANT, Dormant, problem(code, message))
		return
	}
	d.fail(code, message)
}

func (d *decision) fail(code, message string) {
	d.emitPhase(agboxv1.EventType_SANDBOX_FAILED, Failed, problem(code, message))
}

func problem(code, message string) *agboxv1.SandboxPhaseDetails {
	return &agboxv1.SandboxPhaseDetails{ErrorCode: code, ErrorMessage: message}
}

// endRunning ends every exec that runs, in the order of their ids: none outlives what it ran in.
func (d *decision) endRunning(state agboxv1.ExecState, code, message string) {
	for _, id := range slices.Sorted(maps.Keys(d.state.Running)) {
		d.endExec(id, runtime.ExecResult{State: state, Code: code, Message: message})
	}
}

// loseRunning ends every exec that runs with a result that nobody will know.
func (d *decision) loseRunning(why string) {
	d.endRunning(agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecResultLost, why)
}

func (d *decision) execEnded(c ExecEnded) {
	if d.running(c.ExecID) {
		d.endExec(c.ExecID, c.Result)
		d.drained()
	}
}

func (d *decision) endExec(id string, r runtime.ExecResult) {
	kind := agboxv1.EventType_EXEC_FINISHED
	switch r.State {
	case agboxv1.ExecState_EXEC_STATE_FAILED:
		kind = agboxv1.EventType_EXEC_FAILED
	case agboxv1.ExecState_EXEC_STATE_CANCELLED:
		kind = agboxv1.EventType_EXEC_CANCELLED
	}
	d.emitExec(kind, &agboxv1.ExecEventDetails{
		ExecId: id, ExitCode: r.ExitCode, Signal: r.Signal, ExecState: r.State,
		ErrorCode: r.Code, ErrorMessage: r.Message,
		StartedAt: timestamp(r.Started), EndedAt: timestamp(r.Ended), Resources: r.Resources, Pid: uint32(r.PID),
	})
}
