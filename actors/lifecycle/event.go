package lifecycle

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/text"
)

type event = agboxv1.SandboxEvent

// decision collects what a command brings about. state is what the sandbox is after the events so far.
type decision struct {
	state  State
	policy Policy
	now    time.Time
	events []*event
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

const (
	// maxMessage is how many bytes of an error's words an event holds: more than twice what is quoted of a program's output.
	maxMessage = 8 << 10
	// maxName bounds what is a code, an image, or a name.
	maxName = 512
)

// bound makes valid and bounds what an event repeats of programs in the sandbox, of the engine and of requests.
func bound(e *event) {
	message := func(s *string) { *s = text.Bound(*s, maxMessage) }
	name := func(s *string) { *s = text.Bound(*s, maxName) }
	if phase := e.GetSandboxPhase(); phase != nil {
		message(&phase.ErrorMessage)
		name(&phase.ErrorCode)
		name(&phase.Phase)
		name(&phase.Image)
		name(&phase.Reason)
	}
	if exec := e.GetExec(); exec != nil {
		message(&exec.ErrorMessage)
		name(&exec.ErrorCode)
	}
	if service := e.GetService(); service != nil {
		message(&service.ErrorMessage)
		name(&service.ErrorCode)
	}
	if snapshot := e.GetSnapshotDetails(); snapshot != nil {
		message(&snapshot.ErrorMessage)
		name(&snapshot.ErrorCode)
	}
	if command := e.GetCommand(); command != nil {
		message(&command.ErrorMessage)
		name(&command.ErrorCode)
	}
}
